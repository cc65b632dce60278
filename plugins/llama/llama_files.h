/* llama_files.h: toy files of every member of the Llama family, for the plugin's tests. */
#ifndef PLUGINS_LLAMA_LLAMA_FILES_H
#define PLUGINS_LLAMA_LLAMA_FILES_H

#include "tape/test_models.h"

enum llama_file { LLAMA, LLAMA_BIASED, MIXTRAL, QWEN2, QWEN3, QWEN3MOE, PHI3, PHI3_LONG, LLAMA_FILES };

const char *llama_file_name(enum llama_file which);
struct gguf_build *llama_file(enum llama_file which); /* T_L layers of the sizes in tape/test_models.h */
const struct wk_arch *llama_arch(
    void); /* from llama.so, through its one symbol; ends the program if it cannot be loaded */

#endif
