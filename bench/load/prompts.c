/* prompts.c: the requests' bodies. A prompt of N tokens is words drawn at random, cut to exactly N by the server's own
 * /tokenize and /detokenize, so that nothing is guessed about the model's vocabulary and no two prompts share more than
 * a few tokens (a prefix cache would answer them too fast). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "load.h"

static const char *const words[] = { "time",   "light",  "stone",  "river",  "paper",  "green",  "seven",  "garden",
                                     "engine", "quiet",  "north",  "window", "letter", "cloud",  "silver", "music",
                                     "winter", "bread",  "harbor", "signal", "copper", "forest", "mirror", "story",
                                     "yellow", "table",  "ocean",  "circle", "summer", "valley", "bridge", "number",
                                     "carbon", "memory", "island", "planet", "orange", "candle", "theory", "market",
                                     "pencil", "desert", "rocket", "button", "camera", "doctor", "family", "hammer" };

static bool send_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        const ssize_t k = send(fd, bytes, n, MSG_NOSIGNAL);
        if (k <= 0) return false;
        bytes += k;
        n -= (size_t)k;
    }
    return true;
}

/* The whole answer until the server closes. */
static char *receive_all(int fd, size_t *n)
{
    size_t cap = 1 << 16;
    char *bytes = malloc(cap);
    *n = 0;
    for (ssize_t k = 1; bytes && k > 0;) {
        if (*n + 1 >= cap) {
            char *more = realloc(bytes, cap *= 2);
            if (!more) break;
            bytes = more;
        }
        k = recv(fd, bytes + *n, cap - *n - 1, 0);
        if (k > 0) *n += (size_t)k;
    }
    if (bytes) bytes[*n] = '\0';
    return bytes;
}

json_t *load_post(const struct load_options *o, const char *path, json_t *body)
{
    json_t *answer = NULL;
    char head[512], *text = json_dumps(body, JSON_COMPACT), *raw = NULL;
    size_t n = 0;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct timeval patience = { .tv_sec = (time_t)o->timeout + 1 };
    if (fd >= 0) (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (!text || fd < 0 || connect(fd, (const struct sockaddr *)&o->address, sizeof o->address) != 0) {
        (void)fprintf(stderr, "load: %s%s: %s\n", o->url, path, strerror(errno));
        goto done;
    }
    const int k = snprintf(head, sizeof head,
                           "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: "
                           "%zu\r\nConnection: close\r\n\r\n",
                           path, o->host, strlen(text));
    if (k < 0 || k >= (int)sizeof head || !send_all(fd, head, (size_t)k) || !send_all(fd, text, strlen(text))) {
        (void)fprintf(stderr, "load: %s%s: cannot be sent\n", o->url, path);
        goto done;
    }
    raw = receive_all(fd, &n);
    char *start = raw ? strstr(raw, "\r\n\r\n") : NULL;
    if (start && strncmp(raw, "HTTP/1.1 200", 12) == 0) answer = json_loads(start + 4, JSON_DISABLE_EOF_CHECK, NULL);
    if (!answer)
        (void)fprintf(stderr, "load: POST %s%s: expected status 200 and JSON, got: %.200s\n", o->url, path,
                      raw ? raw : "nothing");
done:
    if (fd >= 0) (void)close(fd);
    free(text);
    free(raw);
    return answer;
}

static json_t *tokens_of(const struct load_options *o, const char *text)
{
    json_t *body = json_pack("{s:s, s:b}", "content", text, "add_special", 1),
           *answer = body ? load_post(o, "/tokenize", body) : NULL;
    json_t *tokens = json_incref(json_object_get(answer, "tokens"));
    json_decref(body);
    json_decref(answer);
    return json_is_array(tokens) ? tokens : NULL;
}

/* The text of ids [first, first + n). The caller frees. */
static char *text_of(const struct load_options *o, const json_t *ids, size_t first, size_t n)
{
    json_t *some = json_array(), *body, *answer;
    char *text = NULL;
    for (size_t i = first; i < first + n && i < json_array_size(ids); i++)
        (void)json_array_append(some, json_array_get(ids, i));
    body = json_pack("{s:o}", "tokens", some);
    answer = body ? load_post(o, "/detokenize", body) : NULL;
    const char *content = json_string_value(json_object_get(answer, "content"));
    if (content) text = strdup(content);
    json_decref(body);
    json_decref(answer);
    return text;
}

/* Words at random: more tokens than wanted, since every word is one at least. */
static char *random_words(uint32_t n, uint64_t *state)
{
    char *text = malloc((size_t)n * 8 + 32), *at = text;
    if (!text) return NULL;
    at += sprintf(at, "%llx", (unsigned long long)(load_random(state) & 0xffffff));
    for (uint32_t i = 0; i < n; i++)
        at += sprintf(at, " %s", words[load_random(state) % (sizeof words / sizeof *words)]);
    return text;
}

/* Exactly n tokens, those that the tokenizer adds by itself included. Cutting ids and encoding again can give one more
 * or less: then the cut moves. */
static char *prompt_of(const struct load_options *o, uint32_t n, uint64_t *state)
{
    char *all = random_words(n, state), *text = NULL;
    json_t *ids = all ? tokens_of(o, all) : NULL, *again;
    /* What the tokenizer puts in front: all of it for an empty text. */
    json_t *empty = tokens_of(o, "");
    const size_t added = json_array_size(empty);
    size_t keep = n > added ? n - added : 1, found = 0;
    for (int attempt = 0; ids && attempt < 16; attempt++) {
        free(text);
        text = text_of(o, ids, added, keep);
        again = text ? tokens_of(o, text) : NULL;
        found = json_array_size(again);
        json_decref(again);
        if (!text || found == n) break;
        keep = found > n ? keep - 1 : keep + 1;
    }
    json_decref(empty);
    json_decref(ids);
    free(all);
    if (text && found == n) return text;
    if (text) (void)fprintf(stderr, "load: no prompt of %u tokens could be made (%zu)\n", n, found);
    free(text);
    return NULL;
}

static char *body_of(const struct load_options *o, uint32_t index, const char *prompt)
{
    char id[64];
    (void)snprintf(id, sizeof id, "load-%d-%u", (int)getpid(), index);
    json_t *body =
        json_pack("{s:s, s:s, s:I}", "job_id", id, "prompt", prompt, "max_tokens", (json_int_t)o->output_tokens);
    if (body && o->params) (void)json_object_update(body, o->params);
    if (body && index >= o->requests) { /* measured ones do not queue behind others; and those go on for as long as the
                                           others last */
        (void)json_object_set_new(body, "priority", json_integer(-1000));
        (void)json_object_set_new(body, "max_tokens", json_integer(LOAD_OTHERS_TOKENS));
    }
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

bool bodies_make(const struct load_options *o, struct bodies *out)
{
    uint64_t state = o->seed;
    *out = (struct bodies){ .text = calloc((size_t)o->requests + o->others, sizeof *out->text) };
    for (uint32_t i = 0; out->text && i < o->requests + o->others; i++) {
        char *made = o->prompt ? NULL : prompt_of(o, o->input_tokens, &state);
        if (!o->prompt && !made) break;
        out->text[i] = body_of(o, i, made ? made : o->prompt);
        free(made);
        if (!out->text[i]) break;
        out->n++;
    }
    if (out->n == o->requests + o->others) return true;
    bodies_free(out);
    return false;
}

void bodies_free(struct bodies *b)
{
    for (uint32_t i = 0; i < b->n; i++) free(b->text[i]);
    free(b->text);
    *b = (struct bodies){ 0 };
}
