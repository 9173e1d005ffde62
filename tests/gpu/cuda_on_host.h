// What the CUDA text of kernels needs to run on the host: each thread of a block is a fiber that
// runs until it waits. Shared memory begins as NaN; arrays in global memory end at a page that may
// not be touched; copies that are under way arrive when they are waited for, or at once.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <vector>

#define __device__
#define __forceinline__ static inline
#define __syncthreads() wait_for_block(__LINE__)
#define __shfl_down_sync(mask, value, step, width) shuffled(value, step, width, __LINE__)
#define VECTOR2(name, kind) struct alignas(2 * sizeof(kind)) name##2 { kind x, y; };
#define VECTOR4(name, kind) struct alignas(4 * sizeof(kind)) name##4 { kind x, y, z, w; };
VECTOR2(float, float) VECTOR4(float, float) VECTOR2(int, int) VECTOR4(int, int)

struct Index { int x, y, z; };
static Index threadIdx, blockIdx;

template <class To, class From> static To as(From value) {
  To out;
  memcpy(&out, &value, sizeof out);
  return out;
}
static inline float __int_as_float(int bits) { return as<float>(bits); }
static inline float __uint_as_float(unsigned bits) { return as<float>(bits); }
static inline unsigned __float_as_uint(float value) { return as<unsigned>(value); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline int atomicAdd(int *place, int value) { return (*place += value) - value; }
static inline void __threadfence() {}

struct Copy { void *to; const void *from; int size; bool exists; };
enum State { RUNS, AT_BARRIER, IN_SHUFFLE, DONE };
struct Fiber {
  ucontext_t context;
  State state;
  int line, turn;
  Index index;
  unsigned long long handed[2];
  std::vector<Copy> copies;
  std::vector<char> stack;
};
static std::vector<Fiber> fibers;
static std::set<void *> begun;
static ucontext_t scheduler;
static int current;
static bool late;
static void (*kernel)();
static unsigned char *dynamic_shared;

static void fail(const char *what) {
  printf("%s\n", what);
  fflush(stdout);
  _exit(3);
}
static void wait_as(State state, int line) {
  Fiber &me = fibers[current];
  me.state = state;
  me.line = line;
  swapcontext(&me.context, &scheduler);
}
static inline void wait_for_block(int line) { wait_as(AT_BARRIER, line); }
template <class T> static T shuffled(T value, int step, int width, int line) {
  int me = current, lane = me % 32, turn = fibers[me].turn ^= 1;
  memcpy(&fibers[me].handed[turn], &value, sizeof value);
  wait_as(IN_SHUFFLE, line);
  int other = lane % width + step < width ? me + step : me;
  memcpy(&value, &fibers[other].handed[turn], sizeof value);
  return value;
}
static inline void unset(void *shared, size_t size) {
  if (begun.insert(shared).second) memset(shared, 0xff, size);
}
static void arrive(const Copy &c) {
  if ((uintptr_t)c.to % c.size || (c.exists && (uintptr_t)c.from % c.size)) fail("misaligned copy");
  if (c.exists) memcpy(c.to, c.from, c.size);
  else memset(c.to, 0, c.size);
}
static void begin(const Copy &c) {
  if (!late) return arrive(c);
  memset(c.to, 0xff, c.size);
  fibers[current].copies.push_back(c);
}
static inline void copied() {
  for (const Copy &c : fibers[current].copies) arrive(c);
  fibers[current].copies.clear();
}
#define COPY(size)                                                                            \
  static inline void copy_##size(void *to, const void *from) { begin({to, from, size, true}); } \
  static inline void copy_##size##_where(void *to, const void *from, bool exists) {           \
    begin({to, from, size, exists});                                                          \
  }
COPY(16) COPY(8) COPY(4)

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
static void run_block(bool backwards) {
  size_t count = fibers.size();
  for (;;) {
    for (size_t n = 0; n < count; ++n) {
      current = backwards ? count - 1 - n : n;
      if (fibers[current].state != RUNS) continue;
      threadIdx = fibers[current].index;
      swapcontext(&scheduler, &fibers[current].context);
    }
    bool shuffles = false;
    for (size_t n = 0; n < count; n += 32)
      shuffles |= go_on(IN_SHUFFLE, n, std::min(n + 32, count), "a warp diverges at a shuffle");
    if (!shuffles && !go_on(AT_BARRIER, 0, count, "threads diverge at a barrier")) return;
  }
}
static void launch(void (*of)(), Index grid, Index block, size_t shared, int mode) {
  kernel = of;
  late = mode != 0;
  std::vector<Fiber>(block.x * block.y * block.z).swap(fibers);
  std::vector<char> memory(shared + 16);
  dynamic_shared = (unsigned char *)(((uintptr_t)memory.data() + 15) / 16 * 16);
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
      f.stack.resize(1 << 16);
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.data();
      f.context.uc_stack.ss_size = f.stack.size();
      f.context.uc_link = nullptr;
      makecontext(&f.context, run_fiber, 0);
    }
    run_block(mode != 0);
  }
}
static void *guarded(size_t size) {
  size_t page = 4096, whole = (size + page - 1) / page * page;
  char *at = (char *)mmap(nullptr, whole + page, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(at + whole, page, PROT_NONE);
  memset(at, 0xff, whole);
  return at + whole - (size + 15) / 16 * 16;
}
struct Pointer {
  void *at;
  template <class T> operator T *() const { return (T *)at; }
};
