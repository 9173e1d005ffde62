// What the CUDA text of kernels needs to run on the host: each thread of a block is a fiber that
// runs until it waits. Shared memory begins as NaN; arrays in global memory end at a page that may
// not be touched; copies that are under way arrive when they are waited for, or at once.
// What no kernel changes is in cuda_on_host.cpp, which is compiled once.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#define __device__
#define __forceinline__ static inline
#define __syncthreads() wait_for_block(__LINE__)
#define __shfl_down_sync(mask, value, step, width) shuffled(value, step, width, __LINE__)
#define VECTOR2(name, kind) struct alignas(2 * sizeof(kind)) name##2 { kind x, y; };
#define VECTOR4(name, kind) struct alignas(4 * sizeof(kind)) name##4 { kind x, y, z, w; };
VECTOR2(float, float) VECTOR4(float, float) VECTOR2(int, int) VECTOR4(int, int)
VECTOR4(uint, unsigned) VECTOR2(ushort, unsigned short) VECTOR4(ushort, unsigned short)
VECTOR2(char, signed char) VECTOR4(char, signed char) VECTOR2(uchar, unsigned char)
VECTOR4(uchar, unsigned char) VECTOR2(short, short) VECTOR4(short, short)
VECTOR2(double, double) VECTOR2(longlong, long long)

struct Index { int x, y, z; };
extern Index threadIdx, blockIdx;

template <class To, class From> static To as(From value) {
  To out;
  memcpy(&out, &value, sizeof out);
  return out;
}
static inline float __int_as_float(int bits) { return as<float>(bits); }
static inline float __uint_as_float(unsigned bits) { return as<float>(bits); }
static inline unsigned __float_as_uint(float value) { return as<unsigned>(value); }
static inline double __longlong_as_double(long long bits) { return as<double>(bits); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline int atomicAdd(int *place, int value) { return (*place += value) - value; }
static inline void __threadfence() {}

struct Copy { void *to; const void *from; int size; bool exists; };
enum State { RUNS, AT_BARRIER, IN_SHUFFLE, IN_WARP, DONE };
struct Fiber {
  ucontext_t context;
  State state;
  int line, turn;
  Index index;
  unsigned long long handed[2];
  const void *row;
  unsigned a[4], b[2];
  std::vector<std::vector<Copy>> groups;
  std::vector<std::function<void()>> products;
  std::vector<char> stack;
};
extern std::vector<Fiber> fibers;
extern int current;
extern bool late;
extern unsigned char *dynamic_shared;

[[noreturn]] void fail(const char *what);
void wait_as(State state, int line);
void unset(void *shared, size_t size);
void begin(const Copy &c);
void commit();
void copied_but(size_t ended);
void ldmatrix(unsigned *to, const void *from, int count, bool trans, int line);
void wgmma_wait_0();
void launch(void (*of)(), Index grid, Index block, size_t shared, int mode);
void *guarded(size_t size);

static inline void wait_for_block(int line) { wait_as(AT_BARRIER, line); }
template <class T> static T shuffled(T value, int step, int width, int line) {
  int me = current, lane = me % 32, turn = fibers[me].turn ^= 1;
  memcpy(&fibers[me].handed[turn], &value, sizeof value);
  wait_as(IN_SHUFFLE, line);
  int other = lane % width + step < width ? me + step : me;
  memcpy(&value, &fibers[other].handed[turn], sizeof value);
  return value;
}
static inline void copied() {
  commit();
  copied_but(0);
}
static inline void copied_but_1() { copied_but(1); }
static inline void copied_but_2() { copied_but(2); }
static inline void copied_but_3() { copied_but(3); }
static inline void copied_but_4() { copied_but(4); }
static inline void copied_but_5() { copied_but(5); }
static inline void copied_but_6() { copied_but(6); }
static inline void copied_but_7() { copied_but(7); }
#define COPY(size)                                                                            \
  static inline void copy_##size(void *to, const void *from) { begin({to, from, size, true}); } \
  static inline void copy_##size##_where(void *to, const void *from, bool exists) {           \
    begin({to, from, size, exists});                                                          \
  }
COPY(16) COPY(8) COPY(4)

// What the threads of a warp do together: each hands its part over and waits for the others.
static float f16_load(unsigned short bits) { return as<_Float16>(bits); }
static unsigned short f16_store(float value) { return as<unsigned short>((_Float16)value); }
static float f16_round(float value) { return f16_load(f16_store(value)); }
#define ldmatrix_x2(to, from) ldmatrix(to, from, 2, false, __LINE__)
#define ldmatrix_x4(to, from) ldmatrix(to, from, 4, false, __LINE__)
#define ldmatrix_x2_trans(to, from) ldmatrix(to, from, 2, true, __LINE__)
#define ldmatrix_x4_trans(to, from) ldmatrix(to, from, 4, true, __LINE__)
struct Half {
  unsigned short bits;
  operator float() const { return f16_load(bits); }
};
struct Brain {
  unsigned short bits;
  operator float() const { return as<float>((unsigned)bits << 16); }
};
// Fragments as the PTX ISA lays them out, for elements of 1 or 2 bytes.
template <class Left, class Right, class Total>
static void mma(Total *const (&c)[4], const unsigned *a, const unsigned *b, int line) {
  const int each = 4 / sizeof(Left);
  int me = current, first = me - me % 32, lane = me % 32;
  memcpy(fibers[me].a, a, 16);
  memcpy(fibers[me].b, b, 8);
  wait_as(IN_WARP, line);
  for (int r = 0; r < 4; ++r) {
    int row = lane / 4 + 8 * (r / 2), column = lane % 4 * 2 + r % 2;
    Total sum = *c[r];
    for (int k = 0; k < 8 * each; ++k) {
      int half = k / (4 * each), owner = k / each % 4, e = k % each;
      Left x;
      Right y;
      memcpy(&x, (char *)&fibers[first + row % 8 * 4 + owner].a[row / 8 + 2 * half] + e * sizeof x, sizeof x);
      memcpy(&y, (char *)&fibers[first + column * 4 + owner].b[half] + e * sizeof y, sizeof y);
      sum += (Total)x * (Total)y;
    }
    *c[r] = sum;
  }
  wait_as(IN_WARP, -line);
}
#define MMA(left, right, total, c0, c1, c2, c3, a, b)                 \
  do {                                                                \
    total *const results[4] = {&(c0), &(c1), &(c2), &(c3)};           \
    mma<left, right, total>(results, a, b, __LINE__);                 \
  } while (0)
#define mma_m16n8k16_f16f16f32(...) MMA(Half, Half, float, __VA_ARGS__)
#define mma_m16n8k16_bf16bf16f32(...) MMA(Brain, Brain, float, __VA_ARGS__)
#define mma_m16n8k32_s8s8s32(...) MMA(signed char, signed char, int, __VA_ARGS__)
#define mma_m16n8k32_u8s8s32(...) MMA(unsigned char, signed char, int, __VA_ARGS__)
#define mma_m16n8k32_s8u8s32(...) MMA(signed char, unsigned char, int, __VA_ARGS__)
#define mma_m16n8k32_u8u8s32(...) MMA(unsigned char, unsigned char, int, __VA_ARGS__)

// Products of warpgroups, from where the descriptors say; late ones read when they are waited for.
struct Matrices { const char *from; int leading, stride; };
static Matrices matrix_descriptor(const void *from, int leading, int stride) {
  if ((uintptr_t)from % 16 || leading % 16 || stride % 16) fail("misaligned matrices");
  return {(const char *)from, leading, stride};
}
template <class Element>
static Element element_of(const Matrices &m, int result, int term, bool trans) {
  const int row = 128 / sizeof(Element);
  Element x;
  int across = trans ? term : result, along = trans ? result : term;
  uintptr_t at = (uintptr_t)m.from + across / 8 * m.stride + across % 8 * 128;
  at += along / row * m.leading + along % row * sizeof x;
  memcpy(&x, (const void *)(at ^ (at >> 7 & 7) << 4), sizeof x);
  return x;
}
template <class Left, class Right, class Total, int N, bool trans, size_t... I, class Args>
static void wgmma_of(std::index_sequence<I...>, Args args, int line) {
  int me = current, lane = me % 32, warp = me / 32 % 4;
  if (fibers.size() % 128) fail("no whole warpgroups");
  std::vector<Total *> c = {&std::get<I>(args)...};
  Matrices a = std::get<N / 2>(args), b = std::get<N / 2 + 1>(args);
  auto product = [=] {
    for (int n = 0; n < N / 2; ++n) {
      int row = warp * 16 + lane / 4 + 8 * (n / 2 % 2), column = n / 4 * 8 + lane % 4 * 2 + n % 2;
      for (int k = 0; k < 32 / (int)sizeof(Left); ++k)
        *c[n] += (Total)element_of<Left>(a, row, k, false) * (Total)element_of<Right>(b, column, k, trans);
    }
  };
  if (late) fibers[me].products.push_back(product);
  else product();
  wait_as(IN_WARP, line);
}
template <class Left, class Right, class Total, int N, bool trans, class... Args>
static void wgmma(int line, Args &&...args) {
  wgmma_of<Left, Right, Total, N, trans>(
      std::make_index_sequence<N / 2>(), std::forward_as_tuple(args...), line);
}
static inline void wgmma_fence() {}
static inline void wgmma_commit() {}
static inline void proxy_fence() {}

struct Pointer {
  void *at;
  template <class T> operator T *() const { return (T *)at; }
};
