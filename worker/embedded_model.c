/* embedded_model.c: the models inside the program, as bytes of their files. The assembler includes them, so that they
 * cost the compiler nothing. */
#include "setup.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

/* 64-byte alignment: tensor data inside keep the alignment that they have in the file. */
#define EMBED(symbol, path)                                                                                            \
    __asm__(".pushsection .rodata.embedded_model, \"a\", @progbits\n"                                                  \
            ".balign 64\n"                                                                                             \
            ".global worker_" TEXT(symbol) "_begin\n"                                                                  \
                                           "worker_" TEXT(symbol) "_begin:\n"                                          \
                                                                  ".incbin \"" path "\"\n"                             \
                                                                  ".global worker_" TEXT(                              \
                                                                      symbol) "_end\n"                                 \
                                                                              "worker_" TEXT(symbol) "_end:\n"         \
                                                                                                     ".byte 0\n"       \
                                                                                                     ".popsection\n"); \
    extern const unsigned char worker_##symbol##_begin[], worker_##symbol##_end[]

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
