// The gradient of gradient_kernel(K, biases=True) by hand, to measure the generated one against.
//
// plain       loops over fixed-size arrays, left to the compiler: runs everywhere.
// vector      AVX-512 intrinsics, one rating at a time: the row and its gradient stay in registers, the
//             columns past the last multiple of 16 are done in halves, quarters and single (masked stores are slow).
// transposed  AVX-512 intrinsics, 16 ratings of a row at a time: their dot products are summed together.
//
// All take: rows, indptr, indices, values, theta_w, theta_h, out_w, out_h, scale; D = K + 1.

#include <cstdint>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

using Index = const int32_t *;
using In = const float *__restrict;
using Out = float *__restrict;

template <int K>
static double plain(int64_t n, const int64_t *indptr, Index indices, In x, In tw, In th, Out ow, Out oh, float scale) {
    constexpr int D = K + 1;
    double total = 0;
    for (int64_t i = 0; i < n; i++) {
        float w[D], g[D], row_total = 0;
        for (int k = 0; k < D; k++) w[k] = tw[i * D + k], g[k] = ow[i * D + k];
        for (int64_t r = indptr[i]; r < indptr[i + 1]; r++) {
            In h = th + int64_t(indices[r]) * D;
            Out o = oh + int64_t(indices[r]) * D;
            float dot = 0;
            for (int k = 0; k < K; k++) dot += w[k] * h[k];
            float e = x[r] - w[K] - h[K] - dot;
            row_total += e * e;
            e *= scale;
            for (int k = 0; k < K; k++) g[k] -= e * h[k];
            for (int k = 0; k < K; k++) o[k] -= e * w[k];
            g[K] -= e;
            o[K] -= e;
        }
        for (int k = 0; k < D; k++) ow[i * D + k] = g[k];
        total += row_total;
    }
    return total;
}

#ifdef __AVX512F__

// K floats as V vectors of 16, then one of 8, one of 4 and single ones as needed.
template <int K> struct Columns {
    static constexpr int V = K / 16, Y = K % 16 / 8, X = K % 8 / 4, S = K % 4;
    static constexpr int y_at = 16 * V, x_at = y_at + 8 * Y, s_at = x_at + 4 * X;
    __m512 v[V ? V : 1];
    __m256 y;
    __m128 x;
    float s[S ? S : 1];

    void load(const float *p) {
        for (int i = 0; i < V; i++) v[i] = _mm512_loadu_ps(p + 16 * i);
        if (Y) y = _mm256_loadu_ps(p + y_at);
        if (X) x = _mm_loadu_ps(p + x_at);
        for (int i = 0; i < S; i++) s[i] = p[s_at + i];
    }
    void store(float *p) const {
        for (int i = 0; i < V; i++) _mm512_storeu_ps(p + 16 * i, v[i]);
        if (Y) _mm256_storeu_ps(p + y_at, y);
        if (X) _mm_storeu_ps(p + x_at, x);
        for (int i = 0; i < S; i++) p[s_at + i] = s[i];
    }
    void subtract(float e, const Columns &other) {
        for (int i = 0; i < V; i++) v[i] = _mm512_fnmadd_ps(_mm512_set1_ps(e), other.v[i], v[i]);
        if (Y) y = _mm256_fnmadd_ps(_mm256_set1_ps(e), other.y, y);
        if (X) x = _mm_fnmadd_ps(_mm_set1_ps(e), other.x, x);
        for (int i = 0; i < S; i++) s[i] -= e * other.s[i];
    }
    float dot(const Columns &other) const {
        float rest = 0;
        for (int i = 0; i < S; i++) rest += s[i] * other.s[i];
        __m256 half = _mm256_setzero_ps();
        if (V) {
            __m512 even = _mm512_mul_ps(v[0], other.v[0]), odd = _mm512_setzero_ps();
            for (int i = 1; i < V; i++) (i & 1 ? odd : even) = _mm512_fmadd_ps(v[i], other.v[i], i & 1 ? odd : even);
            if (V > 1) even = _mm512_add_ps(even, odd);
            half = _mm256_add_ps(_mm512_castps512_ps256(even),
                                 _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(even), 1)));
        }
        if (Y) half = _mm256_fmadd_ps(y, other.y, half);
        __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
        if (X) quarter = _mm_fmadd_ps(x, other.x, quarter);
        quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
        return rest + _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
    }
};

template <int K>
static double vector(int64_t n, const int64_t *indptr, Index indices, In x, In tw, In th, Out ow, Out oh, float scale) {
    constexpr int D = K + 1;
    double total = 0;
    for (int64_t i = 0; i < n; i++) {
        Columns<K> w, g, h, o;
        w.load(tw + i * D);
        g.load(ow + i * D);
        float a = tw[i * D + K], ga = ow[i * D + K], row_total = 0;
        for (int64_t r = indptr[i]; r < indptr[i + 1]; r++) {
            int64_t q = int64_t(indices[r]) * D;
            h.load(th + q);
            o.load(oh + q);
            float ob = oh[q + K], e = x[r] - a - th[q + K] - w.dot(h);
            row_total += e * e;
            e *= scale;
            g.subtract(e, h);
            o.subtract(e, w);
            o.store(oh + q);
            ga -= e;
            oh[q + K] = ob - e;
        }
        g.store(ow + i * D);
        ow[i * D + K] = ga;
        total += row_total;
    }
    return total;
}

static inline __m512 pairs(__m512 a, __m512 b) { return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)); }

static inline __m512 fours(__m512 a, __m512 b) {
    __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}

static inline __m512 quarters(__m512 a, __m512 b, __m512 c, __m512 d) {
    __m512 p = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    __m512 q = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
    return _mm512_add_ps(_mm512_shuffle_f32x4(p, q, 0x88), _mm512_shuffle_f32x4(p, q, 0xDD));
}

// Sums of 16 vectors, one in each lane.
static inline __m512 sums(const __m512 *s) {
    __m512 f[4];
    for (int i = 0; i < 4; i++)
        f[i] = fours(pairs(s[4 * i], s[4 * i + 1]), pairs(s[4 * i + 2], s[4 * i + 3]));
    return quarters(f[0], f[1], f[2], f[3]);
}

template <int K>
static double transposed(int64_t n, const int64_t *indptr, Index indices, In x, In tw, In th, Out ow, Out oh,
                         float scale) {
    constexpr int D = K + 1, V = (K + 15) / 16;
    constexpr __mmask16 tail = K % 16 ? (1u << K % 16) - 1 : 0xffff;
    auto load = [](const float *p, int v) {
        return v == V - 1 ? _mm512_maskz_loadu_ps(tail, p + 16 * v) : _mm512_loadu_ps(p + 16 * v);
    };
    double total = 0;
    for (int64_t i = 0; i < n; i++) {
        __m512 w[V], g[V], ga = _mm512_setzero_ps(), row_total = _mm512_setzero_ps();
        for (int v = 0; v < V; v++) w[v] = load(tw + i * D, v), g[v] = load(ow + i * D, v);
        __m512 a = _mm512_set1_ps(tw[i * D + K]);
        for (int64_t r = indptr[i]; r < indptr[i + 1]; r += 16) {
            int count = indptr[i + 1] - r < 16 ? int(indptr[i + 1] - r) : 16;
            __mmask16 some = (1u << count) - 1;
            __m512 s[16];
            for (int q = 0; q < 16; q++) {
                s[q] = _mm512_setzero_ps();
                if (q >= count) continue;
                const float *h = th + int64_t(indices[r + q]) * D;
                for (int v = 0; v < V; v++) s[q] = _mm512_fmadd_ps(w[v], load(h, v), s[q]);
            }
            __m512i at = _mm512_mullo_epi32(_mm512_maskz_loadu_epi32(some, indices + r), _mm512_set1_epi32(D));
            __m512 b = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), some, at, th + K, 4);
            __m512 e = _mm512_sub_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(some, x + r), a), b);
            e = _mm512_maskz_sub_ps(some, e, sums(s));
            row_total = _mm512_fmadd_ps(e, e, row_total);
            e = _mm512_mul_ps(e, _mm512_set1_ps(scale));
            ga = _mm512_sub_ps(ga, e);
            alignas(64) float es[16];
            _mm512_store_ps(es, e);
            for (int q = 0; q < count; q++) {
                int64_t place = int64_t(indices[r + q]) * D;
                __m512 eq = _mm512_set1_ps(es[q]);
                for (int v = 0; v < V; v++) {
                    g[v] = _mm512_fnmadd_ps(eq, load(th + place, v), g[v]);
                    __m512 o = _mm512_fnmadd_ps(eq, w[v], load(oh + place, v));
                    if (v == V - 1 && tail != 0xffff)
                        _mm512_mask_storeu_ps(oh + place + 16 * v, tail, o);
                    else
                        _mm512_storeu_ps(oh + place + 16 * v, o);
                }
                oh[place + K] -= es[q];
            }
        }
        for (int v = 0; v < V; v++) _mm512_mask_storeu_ps(ow + i * D + 16 * v, v == V - 1 ? tail : 0xffff, g[v]);
        ow[i * D + K] += _mm512_reduce_add_ps(ga);
        total += _mm512_reduce_add_ps(row_total);
    }
    return total;
}
#endif

#define EXPORT(kind, K)                                                                                              \
    extern "C" double kind##_##K(int64_t n, const int64_t *indptr, Index indices, In x, In tw, In th, Out ow, Out oh, \
                                 float scale) {                                                                      \
        return kind<K>(n, indptr, indices, x, tw, th, ow, oh, scale);                                                \
    }
#ifdef __AVX512F__
#define RANK(K) EXPORT(plain, K) EXPORT(vector, K) EXPORT(transposed, K)
#else
#define RANK(K) EXPORT(plain, K)
#endif
RANK(10)
RANK(16)
RANK(32)
RANK(64)
RANK(128)
