/* embed_answer.c: see embed_answer.h. */
#include "embed_answer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* The length of a row's first numbers as the request asks for it. */
static double length_of(const struct embed_request *q, const float *row, uint32_t n)
{
    enum { LARGEST = 32760 };
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double x = fabs((double)row[i]);
        if (q->by_largest)
            sum = x > sum ? x : sum;
        else
            sum += !q->power || q->power == 2 ? x * x : pow(x, q->power);
    }
    if (q->by_largest) return sum / LARGEST;
    return !q->power || q->power == 2 ? sqrt(sum) : pow(sum, 1.0 / q->power);
}

/* How many numbers of a row are told, and what they are divided by: of a row that is cut or measured in another way
 * its length, which is 1 again then. */
static uint32_t told(const struct embed_request *q, const struct embed_rows *x, const float *row, double *length)
{
    const bool cut = q->dimensions && q->dimensions != x->width, other = q->by_largest || (q->power && q->power != 2);
    const uint32_t n = cut ? q->dimensions : x->width;
    *length = cut || other ? length_of(q, row, n) : 1;
    if (!(*length > 0)) *length = 1;
    return n;
}

static void put_row(struct http_text *out, const struct embed_request *q, const struct embed_rows *x, const float *row)
{
    double length;
    const uint32_t n = told(q, x, row, &length);
    http_text_add(out, "[", 1);
    for (uint32_t i = 0; i < n; i++) http_text_format(out, i ? ",%.9g" : "%.9g", (double)(float)(row[i] / length));
    http_text_add(out, "]", 1);
}

/* As little-endian numbers of 32 bits, which is how every processor that this builds for has them. */
static void put_bytes(struct http_text *out, const struct embed_request *q, const struct embed_rows *x,
                      const float *row)
{
    double length;
    const uint32_t n = told(q, x, row, &length);
    float *cut = malloc(n * sizeof *cut);
    char *text = malloc(base64_length(n * sizeof *cut));
    if (!cut || !text) out->failed = true;
    for (uint32_t i = 0; cut && i < n; i++) cut[i] = (float)(row[i] / length);
    if (cut && text) {
        base64_encode((const uint8_t *)cut, n * sizeof *cut, text);
        http_text_add(out, "\"", 1);
        http_text_add(out, text, base64_length(n * sizeof *cut));
        http_text_add(out, "\"", 1);
    }
    free(cut);
    free(text);
}

static void put_string(struct http_text *out, const char *before, const char *text)
{
    http_text_add(out, before, strlen(before));
    http_text_json(out, text, strlen(text));
}

static void put_usage(struct http_text *out, const struct embed_rows *x)
{
    http_text_format(out, ",\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 "}", x->tokens,
                     x->tokens);
}

void embed_put_openai(struct http_text *out, const struct embed_request *q, const struct embed_rows *x)
{
    http_text_format(out, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < x->n; i++) {
        http_text_format(out, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", i ? "," : "", i);
        (q->base64 ? put_bytes : put_row)(out, q, x, x->row[i]);
        http_text_add(out, "}", 1);
    }
    put_string(out, "],\"model\":", x->model);
    put_usage(out, x);
    http_text_add(out, "}\n", 2);
}

/* A list of rows for each text, for there are models that give one for each token. */
void embed_put_llama(struct http_text *out, const struct embed_request *q, const struct embed_rows *x)
{
    for (uint32_t i = 0; i < x->n; i++) {
        http_text_format(out, "%s{\"index\":%u,\"embedding\":[", i ? "," : "[", i);
        put_row(out, q, x, x->row[i]);
        http_text_add(out, "]}", 2);
    }
    http_text_add(out, "]\n", 2);
}

void embed_put_ollama(struct http_text *out, const struct embed_request *q, const struct embed_rows *x)
{
    put_string(out, "{\"model\":", q->model ? q->model : x->model);
    http_text_format(out, ",\"embeddings\":[");
    for (uint32_t i = 0; i < x->n; i++) {
        if (i) http_text_add(out, ",", 1);
        put_row(out, q, x, x->row[i]);
    }
    http_text_format(out, "],\"total_duration\":%" PRIu64 ",\"load_duration\":0,\"prompt_eval_count\":%" PRIu64 "}\n",
                     x->duration_ns, x->tokens);
}

void embed_put_tei(struct http_text *out, const struct embed_request *q, const struct embed_rows *x)
{
    for (uint32_t i = 0; i < x->n; i++) {
        http_text_add(out, i ? "," : "[", 1);
        put_row(out, q, x, x->row[i]);
    }
    http_text_add(out, "]\n", 2);
}

void embed_put_ollama_one(struct http_text *out, const struct embed_request *q, const struct embed_rows *x)
{
    http_text_format(out, "{\"embedding\":");
    if (x->n)
        put_row(out, q, x, x->row[0]);
    else
        http_text_add(out, "[]", 2);
    http_text_add(out, "}\n", 2);
}

/* ---- scores -------------------------------------------------------------------------------------------- */

struct scored {
    uint32_t index;
    double score;
};

/* What the model says for a document: of several labels, how much more it says yes than no. */
static double score_of(const struct embed_request *q, const struct embed_rows *x, const float *row)
{
    const double raw = x->width == 1 ? row[0] : (double)row[x->positive] - row[!x->positive];
    return q->raw ? raw : 1 / (1 + exp(-raw));
}

/* The best first, equal ones as they came. */
static int compare(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* A document that is told again, in the form of either interface. */
static void put_document(struct http_text *out, const struct embed_request *q, const struct embed_text *t)
{
    http_text_format(out, q->tei ? ",\"text\":" : ",\"document\":{\"text\":");
    http_text_json(out, t->text, t->len);
    if (!q->tei) http_text_add(out, "}", 1);
}

void embed_put_rerank(struct http_text *out, const struct embed_request *q, const struct embed_rows *x)
{
    struct scored *list = calloc(x->n, sizeof *list);
    if (!list) {
        out->failed = true;
        return;
    }
    for (uint32_t i = 0; i < x->n; i++) list[i] = (struct scored){ i, score_of(q, x, x->row[i]) };
    qsort(list, x->n, sizeof *list, compare);
    if (!q->tei) {
        put_string(out, "{\"id\":", x->id);
        put_string(out, ",\"object\":\"list\",\"model\":", x->model);
        http_text_format(out, ",\"results\":");
    }
    for (uint32_t i = 0; i < q->top; i++) {
        http_text_format(out, "%s{\"index\":%u,\"%s\":%.9g", i ? "," : "[", list[i].index,
                         q->tei ? "score" : "relevance_score", list[i].score);
        if (q->documents) put_document(out, q, &q->texts[list[i].index]);
        http_text_add(out, "}", 1);
    }
    http_text_add(out, "]", 1);
    if (!q->tei) {
        put_usage(out, x);
        http_text_add(out, "}", 1);
    }
    http_text_add(out, "\n", 1);
    free(list);
}
