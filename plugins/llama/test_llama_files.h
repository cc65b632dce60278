/* test_llama_files.h: toy files of every member of the Llama family, for the plugin's tests. */
#ifndef PLUGINS_LLAMA_LLAMA_FILES_H
#define PLUGINS_LLAMA_LLAMA_FILES_H

#include "arch_test.h"

enum llama_file { LLAMA, LLAMA_BIASED, MIXTRAL, QWEN2, QWEN3, QWEN3MOE, LLAMA_FILES };

struct gguf_build *llama_file(uint32_t which); /* enum llama_file; T_L layers of the sizes in test_models.h */
extern const struct arch_test llama_test;

#endif
