/* sampling.c: see sampling.h. */
#include "sampling.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "errors.h"

/* "ID=X" */
static bool parse_bias(const char *text, struct sampler_bias *out)
{
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)text[0])) return false;
    unsigned long id = strtoul(text, &end, 10);
    if (errno || id > UINT32_MAX || *end != '=') return false;
    const char *number = end + 1;
    double bias = strtod(number, &end);
    *out = (struct sampler_bias){ (uint32_t)id, (float)bias };
    return end != number && *end == '\0' && bias >= -100 && bias <= 100; /* false for NaN */
}

int sampling_seed(const struct options *o, struct sampling *s)
{
    const bool failed = !option_given(o, OPT_SEED) &&
                        getrandom(&s->params.seed, sizeof s->params.seed, 0) != (ssize_t)sizeof s->params.seed;
    return failed ? fail(CODE_INTERNAL, "the system gives no random seed: %s; name one with --seed", strerror(errno))
                  : EXIT_DONE;
}

int sampling_read(const struct options *o, struct sampling *out)
{
    const char *given[SAMPLING_BIASES], *command = command_table[o->command].name;
    const uint32_t n = option_list(o, OPT_LOGIT_BIAS, given, SAMPLING_BIASES);
    for (uint32_t i = 0; i < n; i++)
        if (!parse_bias(given[i], &out->bias[i]))
            return fail_usage(command, "--logit-bias: expected ID=X, X from -100 to 100, got \"%.40s\"", given[i]);
    out->n_stops = option_list(o, OPT_STOP, out->stops, STOP_MAX);
    for (uint32_t i = 0; i < out->n_stops; i++)
        if (!out->stops[i][0]) return fail_usage(command, "--stop: the text is empty");
    out->params = (struct sampler_params){ .logit_bias = out->bias,
                                           .n_logit_bias = n,
                                           .top_k = option_u32(o, OPT_TOP_K),
                                           .presence_penalty = (float)option_real(o, OPT_PRESENCE_PENALTY),
                                           .frequency_penalty = (float)option_real(o, OPT_FREQUENCY_PENALTY),
                                           .temperature = (float)option_real(o, OPT_TEMPERATURE),
                                           .repetition_penalty = (float)option_real(o, OPT_REPETITION_PENALTY),
                                           .top_p = (float)option_real(o, OPT_TOP_P),
                                           .min_p = (float)option_real(o, OPT_MIN_P),
                                           .seed = option_u64(o, OPT_SEED) };
    return sampling_seed(o, out);
}

/* Seeds and ids beyond what JSON's readers keep exactly go as texts. */
bool sampling_put(const struct options *o, const struct sampling *s, json_t *body)
{
    static const struct {
        enum option_id option;
        const char *member;
    } reals[] = {
        { OPT_TEMPERATURE, "temperature" },
        { OPT_TOP_P, "top_p" },
        { OPT_MIN_P, "min_p" },
        { OPT_REPETITION_PENALTY, "repetition_penalty" },
        { OPT_PRESENCE_PENALTY, "presence_penalty" },
        { OPT_FREQUENCY_PENALTY, "frequency_penalty" },
    };
    char number[32];
    json_t *bias = json_object(), *stops = json_array();
    bool good = bias && stops;
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        good = good && !json_object_set_new(body, reals[i].member, json_real(option_real(o, reals[i].option)));
    for (uint32_t i = 0; good && i < s->params.n_logit_bias; i++) {
        (void)snprintf(number, sizeof number, "%" PRIu32, s->bias[i].id);
        good = !json_object_set_new(bias, number, json_real((double)s->bias[i].bias));
    }
    for (uint32_t i = 0; good && i < s->n_stops; i++) good = !json_array_append_new(stops, json_string(s->stops[i]));
    (void)snprintf(number, sizeof number, "%" PRIu64, s->params.seed);
    good = good && !json_object_set_new(body, "seed", json_string(number)) &&
           !json_object_set_new(body, "max_tokens", json_integer(option_u32(o, OPT_MAX_TOKENS))) &&
           !json_object_set_new(body, "top_k", json_integer(option_u32(o, OPT_TOP_K)));
    if (s->params.n_logit_bias) good = good && !json_object_set(body, "logit_bias", bias);
    if (s->n_stops) good = good && !json_object_set(body, "stop", stops);
    json_decref(bias);
    json_decref(stops);
    return good;
}
