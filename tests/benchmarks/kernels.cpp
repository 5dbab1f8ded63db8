// For `kernels.py`: the gradient of a block of ratings by hand, and the peak of a core.
//
// `gradient` has the same sums as `dsgmcmc.kernels.gradient`, without noise scales, of arrays that suit it: K is a
// multiple of 16, rows begin on cache lines, and biases are apart. It adds them to arrays that are never read.
#include <algorithm>
#include <chrono>
#include <vector>

typedef float Vector __attribute__((vector_size(64), may_alias));
typedef int Index __attribute__((vector_size(64)));
constexpr int WIDTH = 16, PARTS = K / WIDTH;
constexpr Index LANES = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
// Elements of two vectors, of which the second begins at 16; each is added to the one 2, or 4, after it.
constexpr Index TURNS = {0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29};
constexpr Index PAIRS = {0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29};
constexpr Index FOURS = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};

#define FOLDED(a, b, first, gap) (__builtin_shuffle(a, b, first) + __builtin_shuffle(a, b, first + gap))

// Element i is the sum of x[i].
static inline Vector sums_of(const Vector *x) {
  Vector four[4];
  for (int i = 0; i < 4; i++) {
    const Vector a = FOLDED(x[4 * i], x[4 * i + 1], TURNS, 2), b = FOLDED(x[4 * i + 2], x[4 * i + 3], TURNS, 2);
    four[i] = FOLDED(a, b, PAIRS, 2);
  }
  const Vector low = FOLDED(four[0], four[1], FOURS, 4), high = FOLDED(four[2], four[3], FOURS, 4);
  return FOLDED(low, high, FOURS, 4);
}

// Rows of a factor, and their gradient.
struct Factor {
  int n;
  std::vector<Vector> rows, out_rows;
  std::vector<float> biases, out_biases;

  // From rows of K + 1 numbers, of which the last is the bias.
  Factor(int n, const float *theta)
      : n(n), rows(n * PARTS), out_rows(n * PARTS), biases(n), out_biases(n) {
    for (int i = 0; i < n; i++, theta += K + 1) {
      std::copy(theta, theta + K, (float *)&rows[i * PARTS]);
      biases[i] = theta[K];
    }
  }
};

static double add_gradient(Factor &users, Factor &items, const long *__restrict indptr,
                           const unsigned short *__restrict columns, const float *__restrict values, float scale) {
  const Vector *__restrict w = users.rows.data(), *__restrict h = items.rows.data();
  const float *__restrict bias_h = items.biases.data();
  Vector *__restrict out_w = users.out_rows.data(), *__restrict out_h = items.out_rows.data();
  float *__restrict out_bias_h = items.out_biases.data();
  double total = 0;
  for (int i = 0; i < users.n; i++) {
    Vector row[PARTS], sum[PARTS] = {}, squares = {}, sum_bias = {};
    const float bias = users.biases[i];
    for (int k = 0; k < PARTS; k++) row[k] = w[i * PARTS + k];
    for (long r = indptr[i]; r < indptr[i + 1]; r += WIDTH) {
      const int count = std::min<long>(WIDTH, indptr[i + 1] - r);
      Vector products[WIDTH];
      alignas(Vector) float errors[WIDTH];
      for (int q = 0; q < WIDTH; q++) {
        const Vector *column = h + columns[r + (q < count ? q : 0)] * PARTS;
        products[q] = row[0] * column[0];
        for (int k = 1; k < PARTS; k++) products[q] += row[k] * column[k];
      }
      for (int q = 0; q < count; q++) errors[q] = values[r + q] - bias - bias_h[columns[r + q]];
      Vector &all = *(Vector *)errors;
      all = LANES < count ? all - sums_of(products) : Vector{};
      squares += all * all;
      all *= scale;
      sum_bias -= all;
      for (int q = 0; q < count; q++) {
        const long j = columns[r + q];
        for (int k = 0; k < PARTS; k++) {
          sum[k] -= errors[q] * h[j * PARTS + k];
          out_h[j * PARTS + k] -= errors[q] * row[k];
        }
        out_bias_h[j] -= errors[q];
      }
    }
    for (int k = 0; k < PARTS; k++) out_w[i * PARTS + k] += sum[k];
    for (int q = 0; q < WIDTH; q++) {
      users.out_biases[i] += sum_bias[q];
      total += squares[q];
    }
  }
  return total;
}

// The sum of squared errors; the first call takes in the factors.
extern "C" double gradient(int n, int m, const long *indptr, const unsigned short *columns, const float *values,
                           const float *theta_w, const float *theta_h, double scale) {
  static Factor users(n, theta_w), items(m, theta_h);
  return add_gradient(users, items, indptr, columns, values, (float)scale);
}

// Millions of float32 operations a second of one core: products and sums of numbers in registers.
extern "C" int peak() {
#ifdef __AVX512F__
  constexpr int CHAINS = 12;  // enough to hide how long an operation takes
#else
  constexpr int CHAINS = 6;  // of two registers each
#endif
  constexpr long STEPS = 1000000;
  double best = 0;
  for (int repeat = 0; repeat < 20; repeat++) {
    Vector sums[CHAINS] = {}, x = {};
    x += 0.5f;
    asm volatile("" : "+m"(x));  // the compiler must not know it
    const auto begin = std::chrono::steady_clock::now();
    for (long step = 0; step < STEPS; step++)
      for (int i = 0; i < CHAINS; i++) sums[i] = sums[i] * x + x;
    asm volatile("" : "+m"(sums));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::max(best, 2e-6 * WIDTH * CHAINS * STEPS / seconds.count());
  }
  return (int)best;
}
