/* embedded_model.c: the models inside the program, as bytes of their files. */
#include "embed.h"
#include "setup.h"

#define MODEL(name, symbol) { "embedded:" name, worker_##symbol##_begin, worker_##symbol##_end }

EMBED(haiku, WORKER_HAIKU);
#ifdef WORKER_HAIKU_MOE
EMBED(haiku_moe, WORKER_HAIKU_MOE);
#endif

static const struct embedded_model models[] = {
    MODEL("haiku", haiku),
#ifdef WORKER_HAIKU_MOE
    MODEL("haiku-moe", haiku_moe),
#endif
};

const struct embedded_model *embedded_models(uint32_t *n)
{
    *n = sizeof models / sizeof *models;
    return models;
}
