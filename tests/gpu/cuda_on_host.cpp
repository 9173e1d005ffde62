// The block of fibers of cuda_on_host.h: who runs next, and what is under way.
#include "cuda_on_host.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <set>

Index threadIdx, blockIdx;
std::vector<Fiber> fibers;
int current;
bool late;
unsigned char *dynamic_shared;
static std::set<void *> begun;
static ucontext_t scheduler;
static void (*kernel)();

void fail(const char *what) {
  printf("%s\n", what);
  fflush(stdout);
  _exit(3);
}
void wait_as(State state, int line) {
  Fiber &me = fibers[current];
  me.state = state;
  me.line = line;
  swapcontext(&me.context, &scheduler);
}
void unset(void *shared, size_t size) {
  if (begun.insert(shared).second) memset(shared, 0xff, size);
}
static void arrive(const Copy &c) {
  if ((uintptr_t)c.to % c.size || (c.exists && (uintptr_t)c.from % c.size)) fail("misaligned copy");
  if (c.exists) memcpy(c.to, c.from, c.size);
  else memset(c.to, 0, c.size);
}
void begin(const Copy &c) {
  if (!late) return arrive(c);
  memset(c.to, 0xff, c.size);
  fibers[current].groups.back().push_back(c);
}
void commit() { fibers[current].groups.emplace_back(); }
// The last group is that which has not ended: it is never waited for by number.
void copied_but(size_t ended) {
  auto &groups = fibers[current].groups;
  size_t there = groups.size() > ended + 1 ? groups.size() - ended - 1 : 0;
  for (size_t n = 0; n < there; ++n)
    for (const Copy &c : groups[n]) arrive(c);
  groups.erase(groups.begin(), groups.begin() + there);
}

void ldmatrix(unsigned *to, const void *from, int count, bool trans, int line) {
  int me = current, first = me - me % 32, lane = me % 32;
  if ((uintptr_t)from % 16) fail("misaligned row of a matrix");
  fibers[me].row = from;
  wait_as(IN_WARP, line);
  for (int m = 0; m < count; ++m) {
    unsigned short pair[2];
    for (int e = 0; e < 2; ++e) {
      int row = trans ? lane % 4 * 2 + e : lane / 4, column = trans ? lane / 4 : lane % 4 * 2 + e;
      pair[e] = ((const unsigned short *)fibers[first + 8 * m + row].row)[column];
    }
    memcpy(to + m, pair, 4);
  }
  wait_as(IN_WARP, -line);
}

void wgmma_wait_0() {
  for (auto &product : fibers[current].products) product();
  fibers[current].products.clear();
}

static void run_fiber() {
  kernel();
  copied();
  wait_as(DONE, 0);
}
// All that wait in [from, to), at one place, go on; false if none does.
static bool go_on(State state, size_t from, size_t to, const char *divergence) {
  size_t waiting = 0;
  for (size_t n = from; n < to; ++n) waiting += fibers[n].state == state;
  if (!waiting) return false;
  for (size_t n = from; n < to; ++n) {
    if (waiting < to - from || fibers[n].line != fibers[from].line) fail(divergence);
    fibers[n].state = RUNS;
  }
  return true;
}
// A warp runs as far as the barrier before the next one begins: else where warps wait for their own
// threads would order them, too.
static void run_warp(size_t from, size_t to, bool backwards) {
  bool together = true;
  while (together) {
    for (size_t n = from; n < to; ++n) {
      current = backwards ? to - 1 - (n - from) : n;
      if (fibers[current].state != RUNS) continue;
      threadIdx = fibers[current].index;
      swapcontext(&scheduler, &fibers[current].context);
    }
    together = go_on(IN_SHUFFLE, from, to, "a warp diverges at a shuffle");
    together |= go_on(IN_WARP, from, to, "a warp diverges at a product");
  }
}
static void run_block(bool backwards) {
  size_t count = fibers.size(), warps = (count + 31) / 32;
  do {
    for (size_t n = 0; n < warps; ++n) {
      size_t from = 32 * (backwards ? warps - 1 - n : n);
      run_warp(from, std::min(from + 32, count), backwards);
    }
  } while (go_on(AT_BARRIER, 0, count, "threads diverge at a barrier"));
}
void launch(void (*of)(), Index grid, Index block, size_t shared, int mode) {
  kernel = of;
  late = mode != 0;
  std::vector<Fiber>(block.x * block.y * block.z).swap(fibers);
  std::vector<char> memory(shared + 1024);
  dynamic_shared = (unsigned char *)(((uintptr_t)memory.data() + 1023) / 1024 * 1024);
  int blocks = grid.x * grid.y * grid.z;
  for (int k = 0; k < blocks; ++k) {
    int b = mode ? blocks - 1 - k : k;
    blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
    begun.clear();
    memset(dynamic_shared, 0xff, shared);
    for (size_t n = 0; n < fibers.size(); ++n) {
      Fiber &f = fibers[n];
      int t = n;
      f.index = {t % block.x, t / block.x % block.y, t / block.x / block.y};
      f.state = RUNS;
      f.turn = 0;
      f.groups.assign(1, {});
      f.stack.resize(1 << 18);
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.data();
      f.context.uc_stack.ss_size = f.stack.size();
      f.context.uc_link = nullptr;
      makecontext(&f.context, run_fiber, 0);
    }
    run_block(mode != 0);
  }
}
void *guarded(size_t size) {
  size_t page = 4096, whole = (size + page - 1) / page * page;
  char *at = (char *)mmap(nullptr, whole + page, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(at + whole, page, PROT_NONE);
  memset(at, 0xff, whole);
  return at + whole - (size + 15) / 16 * 16;
}
