/* embedded_model.c: the default model's file, as bytes of this program. The assembler includes it, so that it costs the compiler nothing. */
#include "setup.h"

/* 64-byte alignment: tensor data inside keep the alignment that they have in the file. */
__asm__(".pushsection .rodata.embedded_model, \"a\", @progbits\n"
        ".balign 64\n"
        ".global worker_embedded_begin\n"
        "worker_embedded_begin:\n"
        ".incbin \"" WORKER_EMBEDDED_MODEL "\"\n"
        ".global worker_embedded_end\n"
        "worker_embedded_end:\n"
        ".byte 0\n"
        ".popsection\n");

extern const unsigned char worker_embedded_begin[], worker_embedded_end[];

struct embedded_model embedded_model(void)
{
    return (struct embedded_model){ worker_embedded_begin, (uint64_t)(worker_embedded_end - worker_embedded_begin) };
}
