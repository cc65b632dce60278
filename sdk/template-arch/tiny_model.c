/* tiny_model.c: a small model of this architecture, and what its logits are.
 *
 *     tiny_model write FILE       writes the model: a GGUF file with a vocabulary of letters and random weights
 *     tiny_model ids              prints the token ids that the next one is about
 *     tiny_model compare LOGITS   compares logits that the worker wrote for them with a forward pass of its own
 *
 * The forward pass here is the definition, in double, one token after the other, and uses nothing of the worker: what
 * both say alike is right. Weights are drawn in a fixed order, so they need not be read back from the file. */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 128, L = 2, E = 32, F = 64, H = 4, KV = 2, D = E / H, V = 32, MAX_TENSORS = 64 };
static const double rope_base = 10000, eps = 1e-5;
static const uint32_t ids[] = { 1, 3, 11, 8, 15, 15, 18, 3, 26, 18, 21, 15, 7, 2, 5, 5 }; /* any will do */
enum { N = sizeof ids / sizeof *ids };

static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "tiny_model: ");
    (void)vfprintf(stderr, format, args);
    (void)fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* ---- the weights ----------------------------------------------------------------------------------------------- */

struct tensor {
    char name[64];
    uint32_t rows, cols; /* rows 0: a vector [cols] */
    float *w;            /* [rows][cols] */
};
static struct tensor tensors[MAX_TENSORS];
static uint32_t n_tensors;

/* About uniform in -1 .. 1, the same on every machine (the generator of Numerical Recipes). */
static float draw(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)((double)(state >> 8) / 8388608.0 - 1.0);
}

/* blk.<layer>.<name>.weight, or <name>.weight if layer is -1. A matrix keeps the size of what it multiplies; a vector
 * is near 1, as norms are. */
static void add(int layer, const char *name, uint32_t rows, uint32_t cols)
{
    if (n_tensors == MAX_TENSORS) fail("more than %d tensors", MAX_TENSORS);
    struct tensor *t = &tensors[n_tensors++];
    const size_t n = (size_t)(rows ? rows : 1) * cols;
    if (layer < 0)
        (void)snprintf(t->name, sizeof t->name, "%s.weight", name);
    else
        (void)snprintf(t->name, sizeof t->name, "blk.%d.%s.weight", layer, name);
    t->rows = rows;
    t->cols = cols;
    t->w = malloc(n * sizeof *t->w);
    if (!t->w) fail("no memory");
    for (size_t i = 0; i < n; i++) t->w[i] = rows ? draw() * (float)sqrt(3.0 / cols) : 1 + 0.25f * draw();
}

static void draw_model(void)
{
    add(-1, "token_embd", V, E);
    for (int l = 0; l < L; l++) {
        add(l, "attn_norm", 0, E);
        add(l, "attn_q", H * D, E);
        add(l, "attn_k", KV * D, E);
        add(l, "attn_v", KV * D, E);
        add(l, "attn_output", E, H * D);
        add(l, "ffn_norm", 0, E);
        add(l, "ffn_gate", F, E);
        add(l, "ffn_up", F, E);
        add(l, "ffn_down", E, F);
    }
    add(-1, "output_norm", 0, E);
    add(-1, "output", V, E);
}

static const float *weights(int layer, const char *name)
{
    char full[64];
    if (layer < 0)
        (void)snprintf(full, sizeof full, "%s.weight", name);
    else
        (void)snprintf(full, sizeof full, "blk.%d.%s.weight", layer, name);
    for (uint32_t i = 0; i < n_tensors; i++)
        if (strcmp(tensors[i].name, full) == 0) return tensors[i].w;
    fail("no tensor %s", full);
    return NULL;
}

/* ---- the file: GGUF, version 3, little-endian ------------------------------------------------------------------ */

enum { U32 = 4, F32 = 6, TEXT = 8, ARRAY = 9, ALIGN = 32 };

static void put(FILE *f, const void *bytes, size_t n)
{
    if (fwrite(bytes, 1, n, f) != n) fail("the file cannot be written");
}
static void put_u32(FILE *f, uint32_t v) { put(f, &v, sizeof v); }
static void put_u64(FILE *f, uint64_t v) { put(f, &v, sizeof v); }
static void put_f32(FILE *f, float v) { put(f, &v, sizeof v); }
static void put_text(FILE *f, const char *s)
{
    put_u64(f, strlen(s));
    put(f, s, strlen(s));
}

static uint64_t n_keys;
static void key(FILE *f, const char *name, uint32_t type)
{
    put_text(f, name);
    put_u32(f, type);
    n_keys++;
}
static void key_u32(FILE *f, const char *name, uint32_t v)
{
    key(f, name, U32);
    put_u32(f, v);
}
static void key_f32(FILE *f, const char *name, double v)
{
    key(f, name, F32);
    put_f32(f, (float)v);
}
static void key_text(FILE *f, const char *name, const char *v)
{
    key(f, name, TEXT);
    put_text(f, v);
}
static void key_array(FILE *f, const char *name, uint32_t element, uint64_t n)
{
    key(f, name, ARRAY);
    put_u32(f, element);
    put_u64(f, n);
}

/* <unk> <s> </s>, the space, a to z, and two signs: each token a character, so nothing has to be merged. */
static void vocabulary(FILE *f)
{
    key_text(f, "tokenizer.ggml.model", "llama");
    key_array(f, "tokenizer.ggml.tokens", TEXT, V);
    static const char *const first[] = { "<unk>", "<s>", "</s>", "\xe2\x96\x81" };
    for (uint32_t i = 0; i < V; i++) {
        const char letter[2] = { i < 30 ? (char)('a' + i - 4) : i == 30 ? '.' : ',', '\0' };
        put_text(f, i < 4 ? first[i] : letter);
    }
    key_array(f, "tokenizer.ggml.scores", F32, V);
    for (uint32_t i = 0; i < V; i++) put_f32(f, 0);
    key_array(f, "tokenizer.ggml.token_type", U32, V);
    for (uint32_t i = 0; i < V; i++) put_u32(f, i == 0 ? 2 : i < 3 ? 3 : 1); /* unknown, control, normal */
    key_u32(f, "tokenizer.ggml.unknown_token_id", 0);
    key_u32(f, "tokenizer.ggml.bos_token_id", 1);
    key_u32(f, "tokenizer.ggml.eos_token_id", 2);
}

static void metadata(FILE *f)
{
    key_text(f, "general.architecture", "myarch");
    key_text(f, "general.name", "tiny myarch");
    key_u32(f, "myarch.context_length", CONTEXT);
    key_u32(f, "myarch.block_count", L);
    key_u32(f, "myarch.embedding_length", E);
    key_u32(f, "myarch.feed_forward_length", F);
    key_u32(f, "myarch.attention.head_count", H);
    key_u32(f, "myarch.attention.head_count_kv", KV);
    key_f32(f, "myarch.rope.freq_base", rope_base);
    key_f32(f, "myarch.attention.layer_norm_rms_epsilon", eps);
    vocabulary(f);
}

static uint64_t bytes_of(const struct tensor *t) { return (uint64_t)(t->rows ? t->rows : 1) * t->cols * sizeof *t->w; }

static void pad(FILE *f)
{
    while (ftell(f) % ALIGN) put(f, "", 1);
}

static void write_model(const char *path)
{
    FILE *f = fopen(path, "wb");
    if (!f) fail("%s cannot be written", path);
    put(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, n_tensors);
    const long count_at = ftell(f);
    put_u64(f, 0); /* keys: counted below */
    metadata(f);
    uint64_t offset = 0;
    for (uint32_t i = 0; i < n_tensors; i++) {
        const struct tensor *t = &tensors[i];
        put_text(f, t->name);
        put_u32(f, t->rows ? 2 : 1);
        put_u64(f, t->cols); /* the fastest dimension first */
        if (t->rows) put_u64(f, t->rows);
        put_u32(f, 0); /* type F32 */
        put_u64(f, offset);
        offset += (bytes_of(t) + ALIGN - 1) / ALIGN * ALIGN;
    }
    pad(f);
    for (uint32_t i = 0; i < n_tensors; i++) {
        put(f, tensors[i].w, bytes_of(&tensors[i]));
        pad(f);
    }
    if (fseek(f, count_at, SEEK_SET) != 0) fail("%s cannot be written", path);
    put_u64(f, n_keys);
    if (fclose(f) != 0) fail("%s cannot be written", path);
}

/* ---- the forward pass, as in the paper ------------------------------------------------------------------------- */

/* y [rows] = W [rows][cols] x [cols] */
static void linear(double *y, const float *w, uint32_t rows, uint32_t cols, const double *x)
{
    for (uint32_t r = 0; r < rows; r++) {
        y[r] = 0;
        for (uint32_t c = 0; c < cols; c++) y[r] += (double)w[r * cols + c] * x[c];
    }
}

static void rms_norm(double *y, const double *x, const float *w)
{
    double squares = 0;
    for (uint32_t i = 0; i < E; i++) squares += x[i] * x[i];
    for (uint32_t i = 0; i < E; i++) y[i] = x[i] / sqrt(squares / E + eps) * (double)w[i];
}

/* Every head of D values: value i with value i + D / 2. */
static void rope(double *x, uint32_t heads, uint32_t position)
{
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t i = 0; i < D / 2; i++) {
            const double angle = position * pow(rope_base, -(double)i / (D / 2));
            double *a = x + h * D + i, *b = a + D / 2, a0 = *a, b0 = *b;
            *a = a0 * cos(angle) - b0 * sin(angle);
            *b = a0 * sin(angle) + b0 * cos(angle);
        }
}

static double keys_of[L][N][KV * D], values_of[L][N][KV * D];

static void attention(double *y, const double *q, int l, uint32_t position)
{
    for (uint32_t h = 0; h < H; h++) {
        const uint32_t kv = h / (H / KV) * D;
        double p[N], sum = 0;
        for (uint32_t s = 0; s <= position; s++) {
            double dot = 0;
            for (uint32_t i = 0; i < D; i++) dot += q[h * D + i] * keys_of[l][s][kv + i];
            p[s] = exp(dot / sqrt(D));
            sum += p[s];
        }
        for (uint32_t i = 0; i < D; i++) {
            y[h * D + i] = 0;
            for (uint32_t s = 0; s <= position; s++) y[h * D + i] += p[s] / sum * values_of[l][s][kv + i];
        }
    }
}

static void forward(double logits[V], uint32_t id, uint32_t position)
{
    double x[E], h[E], q[H * D], a[H * D], gate[F], up[F], y[E];
    for (uint32_t i = 0; i < E; i++) x[i] = (double)weights(-1, "token_embd")[id * E + i];
    for (int l = 0; l < L; l++) {
        double *k = keys_of[l][position], *v = values_of[l][position];
        rms_norm(h, x, weights(l, "attn_norm"));
        linear(q, weights(l, "attn_q"), H * D, E, h);
        linear(k, weights(l, "attn_k"), KV * D, E, h);
        linear(v, weights(l, "attn_v"), KV * D, E, h);
        rope(q, H, position);
        rope(k, KV, position);
        attention(a, q, l, position);
        linear(y, weights(l, "attn_output"), E, H * D, a);
        for (uint32_t i = 0; i < E; i++) x[i] += y[i];

        rms_norm(h, x, weights(l, "ffn_norm"));
        linear(gate, weights(l, "ffn_gate"), F, E, h);
        linear(up, weights(l, "ffn_up"), F, E, h);
        for (uint32_t i = 0; i < F; i++) up[i] *= gate[i] / (1 + exp(-gate[i]));
        linear(y, weights(l, "ffn_down"), E, F, up);
        for (uint32_t i = 0; i < E; i++) x[i] += y[i];
    }
    rms_norm(h, x, weights(-1, "output_norm"));
    linear(logits, weights(-1, "output"), V, E, h);
}

/* The worker keeps keys and values in 16 bits: that is what the limit leaves room for. */
static int compare(const char *path)
{
    static float got[N][V];
    double error = 0, size = 0;
    FILE *f = fopen(path, "rb");
    if (!f || fread(got, sizeof got, 1, f) != 1 || fgetc(f) != EOF) fail("%s: expected [%d][%d] floats", path, N, V);
    (void)fclose(f);
    for (uint32_t n = 0; n < N; n++) {
        double want[V];
        forward(want, ids[n], n);
        for (uint32_t i = 0; i < V; i++) {
            error += ((double)got[n][i] - want[i]) * ((double)got[n][i] - want[i]);
            size += want[i] * want[i];
        }
    }
    const double relative = sqrt(error / size);
    const int ok = relative < 1e-3; /* not so if anything is NaN */
    (void)printf("%s: %d logits, relative rms error %.1e\n", ok ? "right" : "WRONG", N * V, relative);
    return !ok;
}

int main(int argc, char **argv)
{
    draw_model();
    if (argc == 3 && strcmp(argv[1], "write") == 0) {
        write_model(argv[2]);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "ids") == 0) {
        for (uint32_t n = 0; n < N; n++) (void)printf("%u%c", ids[n], n + 1 < N ? ' ' : '\n');
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "compare") == 0) return compare(argv[2]);
    fail("expected write FILE, ids or compare LOGITS");
    return 2;
}
