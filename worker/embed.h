/* embed.h: files as parts of the program. The assembler includes them, so that they cost the compiler nothing. */
#ifndef WORKER_EMBED_H
#define WORKER_EMBED_H

/* Declares worker_SYMBOL_begin and worker_SYMBOL_end: the bytes of the file `path`, a literal, and one zero behind
 * them. 64-byte alignment: tensor data inside a model keep the alignment that they have in the file. */
#define EMBED(symbol, path)                                                 \
    __asm__(".pushsection .rodata.embedded, \"a\", @progbits\n"             \
            ".balign 64\n"                                                  \
            ".global worker_" #symbol "_begin\nworker_" #symbol "_begin:\n" \
            ".incbin \"" path "\"\n"                                        \
            ".global worker_" #symbol "_end\nworker_" #symbol "_end:\n"     \
            ".byte 0\n"                                                     \
            ".popsection\n");                                               \
    extern const unsigned char worker_##symbol##_begin[], worker_##symbol##_end[]

#endif
