/* A double of NVIDIA's driver for the real Python bindings, which find functions by
 * cuGetProcAddress. Memory is the host's. Copies and kernels run when somebody waits for them, so
 * that what they use must still be there; what the driver would refuse is refused. Its one kernel
 * is add(in, out, space): out = space = in + 1 in every thread. "hold" passes the time. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK, INVALID = 1, NO_ROOM = 2, NO_START = 3, NO_CONTEXT = 201, UNKNOWN = 500, ILLEGAL = 700 };
enum { MOST = 4096, MEMORY = 1 << 24, NOTHING, TO_DEVICE, TO_HOST, FILL, ADD, HOLD, EVENT };

typedef struct { int kind; uint64_t a, b, c, n; } work;
typedef struct { uint64_t at; size_t size; int host; } piece;
static work todo[MOST];
static piece pieces[MOST];
static int works, count, started, sticky, deep, fails;
static void *contexts[64];
static char context[1];
static uint64_t nanoseconds;
static size_t used;
static unsigned most_shared = 48 << 10;

#define ENTER do { if (!started) return NO_START; if (sticky) return sticky; } while (0)
#define CONTEXT do { ENTER; if (contexts[deep] != context) return NO_CONTEXT; } while (0)

static piece *piece_of(uint64_t at, size_t size, int host) {
  for (int i = 0; i < count; ++i)
    if (pieces[i].at <= at && at + size <= pieces[i].at + pieces[i].size && pieces[i].host == host)
      return pieces + i;
  return NULL;
}
static int later(int kind, uint64_t a, uint64_t b, uint64_t c, uint64_t n) {
  if (works == MOST) return INVALID;
  todo[works++] = (work){kind, a, b, c, n};
  return OK;
}
static int run(work w) {
  switch (w.kind) {
    case TO_DEVICE: memcpy((void *)w.a, (void *)w.b, w.n); return OK;
    case TO_HOST: memcpy((void *)w.b, (void *)w.a, w.n); return OK;
    case FILL: for (uint64_t i = 0; i < w.n; ++i) ((uint32_t *)w.a)[i] = (uint32_t)w.b; return OK;
    case HOLD: nanoseconds += w.n; return OK;
    case EVENT: *(uint64_t *)w.a = nanoseconds; return OK;
  }
  if (fails) return ILLEGAL;
  for (uint64_t i = 0; i < w.n; ++i)
    ((float *)w.b)[i] = ((float *)w.c)[i] = ((float *)w.a)[i] + 1;
  nanoseconds += 3000;
  return OK;
}
static int flush(void) {
  for (int i = 0; i < works && !sticky; ++i) sticky = run(todo[i]);
  works = 0;
  return sticky;
}
static int allocate(uint64_t *out, size_t size, int host) {
  CONTEXT;
  if (!size || count == MOST) return INVALID;
  if (!host && used + size > MEMORY) return NO_ROOM;
  *out = (uint64_t)aligned_alloc(256, (size + 255) / 256 * 256);
  pieces[count++] = (piece){*out, size, host};
  used += host ? 0 : size;
  return OK;
}
static int give_up(uint64_t at, int host) {
  CONTEXT;
  flush();
  for (int i = 0; i < count; ++i)
    if (pieces[i].at == at && pieces[i].host == host) {
      used -= host ? 0 : pieces[i].size;
      free((void *)at);
      pieces[i] = pieces[--count];
      return OK;
    }
  return INVALID;
}

static int init(unsigned flags) { started = !flags; return flags ? INVALID : OK; }
static int error_string(int code, const char **text) {
  static char said[32];
  snprintf(said, sizeof said, "text of %d", code);
  *text = said;
  return OK;
}
static int version(int *n) { *n = 13000; return OK; }
static int device_count(int *n) { ENTER; *n = 1; return OK; }
static int device_get(int *d, int n) { ENTER; *d = n; return n ? 101 : OK; }
static int device_name(char *text, int size, int d) { ENTER; snprintf(text, size, "double"); return d; }
static int total(size_t *n, int d) { ENTER; *n = MEMORY; return d; }
static int attribute(int *n, int what, int d) {
  static const int known[][2] = {{75, 9}, {76, 0}, {16, 132}, {38, 1 << 16}, {97, 227 << 10}, {1, 1024}};
  ENTER;
  for (int i = 0; i < 6; ++i)
    if (known[i][0] == what) { *n = known[i][1]; return d; }
  return INVALID;
}
static int retain(void **c, int d) { ENTER; *c = context; return d; }
static int set_current(void *c) { ENTER; contexts[deep] = c; return OK; }
static int push(void *c) { ENTER; contexts[++deep] = c; return OK; }
static int pop(void **c) { if (c) *c = contexts[deep]; if (!deep) return NO_CONTEXT; --deep; return OK; }
static int mem_alloc(uint64_t *at, size_t n) { return allocate(at, n, 0); }
static int mem_free(uint64_t at) { return give_up(at, 0); }
static int host_alloc(uint64_t *at, size_t n, unsigned flags) { return flags ? INVALID : allocate(at, n, 1); }
static int host_free(uint64_t at) { return give_up(at, 1); }
static int to_device(uint64_t at, uint64_t from, size_t n, void *stream) {
  CONTEXT;
  return stream && piece_of(at, n, 0) ? later(TO_DEVICE, at, from, 0, n) : INVALID;
}
static int to_host(uint64_t to, uint64_t at, size_t n, void *stream) {
  CONTEXT;
  return stream && piece_of(at, n, 0) ? later(TO_HOST, at, to, 0, n) : INVALID;
}
static int fill(uint64_t at, unsigned word, size_t n, void *stream) {
  CONTEXT;
  return stream && at % 4 == 0 && piece_of(at, 4 * n, 0) ? later(FILL, at, word, 0, n) : INVALID;
}
static int load(void **module, const char *code) { CONTEXT; *module = (void *)code; return code[0] == 127 ? OK : 200; }
static int unload(void *module) { CONTEXT; return module ? flush() : INVALID; }
static int function(void **f, void *module, const char *name) {
  CONTEXT;
  *f = (void *)(uintptr_t)(strcmp(name, "add") == 0 ? ADD : strcmp(name, "hold") == 0 ? HOLD : 0);
  return *f && module ? OK : UNKNOWN;
}
static int set_attribute(void *f, int what, int value) {
  CONTEXT;
  if ((uintptr_t)f != ADD || what != 8 || value > 227 << 10) return INVALID;
  most_shared = (unsigned)value;
  return OK;
}
static int launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **params, void **extra) {
  CONTEXT;
  uint64_t n = (uint64_t)gx * gy * gz * bx * by * bz;
  if (!n || bx * by * bz > 1024 || shared > most_shared || extra || !stream) return INVALID;
  if ((uintptr_t)f == HOLD) return later(HOLD, 0, 0, 0, *(uint64_t *)params[0]);
  uint64_t at[3];
  for (int i = 0; i < 3; ++i) {
    at[i] = *(uint64_t *)params[i];
    if (!piece_of(at[i], 4 * n, 0)) return INVALID;
  }
  return later(ADD, at[0], at[1], at[2], n);
}
static int synchronize(void *what) { CONTEXT; return what ? flush() : INVALID; }
static int wait_event(void *stream, void *event, unsigned flags) { CONTEXT; return stream && event && !flags ? OK : INVALID; }
static int event_create(void **event, unsigned flags) { CONTEXT; *event = calloc(1, 8); return flags ? INVALID : OK; }
static int event_record(void *event, void *stream) { CONTEXT; return stream ? later(EVENT, (uint64_t)event, 0, 0, 0) : INVALID; }
static int elapsed(float *ms, const uint64_t *start, const uint64_t *end) {
  CONTEXT;
  *ms = (float)(*end - *start) * 1e-6f;
  return works ? 600 : OK;
}

/* For the test: the thread's context, how many pieces of memory there are, and kernels that fail
 * from now on. */
void *double_context(void) { return contexts[deep]; }
int double_pieces(void) { return count; }
void double_fails(void) { fails = 1; }

int cuGetProcAddress_v2(const char *name, void **found, int asked, uint64_t flags, int *status) {
  static const struct { const char *name; void *function; } all[] = {
    {"cuInit", init}, {"cuGetErrorString", error_string}, {"cuDriverGetVersion", version},
    {"cuDeviceGetCount", device_count}, {"cuDeviceGet", device_get}, {"cuDeviceGetName", device_name},
    {"cuDeviceTotalMem", total}, {"cuDeviceGetAttribute", attribute},
    {"cuDevicePrimaryCtxRetain", retain}, {"cuCtxSetCurrent", set_current},
    {"cuCtxPushCurrent", push}, {"cuCtxPopCurrent", pop}, {"cuMemAlloc", mem_alloc},
    {"cuMemFree", mem_free}, {"cuMemHostAlloc", host_alloc}, {"cuMemFreeHost", host_free},
    {"cuMemcpyHtoDAsync", to_device}, {"cuMemcpyDtoHAsync", to_host}, {"cuMemsetD32Async", fill},
    {"cuModuleLoadData", load}, {"cuModuleUnload", unload}, {"cuModuleGetFunction", function},
    {"cuFuncSetAttribute", set_attribute}, {"cuLaunchKernel", launch}, {"cuStreamSynchronize", synchronize},
    {"cuStreamWaitEvent", wait_event}, {"cuEventCreate", event_create},
    {"cuEventRecord", event_record}, {"cuEventSynchronize", synchronize},
    {"cuEventElapsedTime", elapsed}, {"cuGetProcAddress", cuGetProcAddress_v2},
  };
  (void)asked; (void)flags;
  *found = NULL;
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
    if (strcmp(all[i].name, name) == 0) *found = all[i].function;
  if (status) *status = *found ? 0 : 1;
  return OK;
}
