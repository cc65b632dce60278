/* test_gpt_files.h: toy files of GPT-2 and GPT-OSS, for the plugin's tests. */
#ifndef PLUGINS_GPT_GPT_FILES_H
#define PLUGINS_GPT_GPT_FILES_H

#include "arch_test.h"

enum gpt_file { GPT2, GPT2_UNTIED, GPT_OSS, GPTOSS, GPT_FILES }; /* GPTOSS: as ollama names it and its tensors */

struct gguf_build *gpt_file(uint32_t which); /* enum gpt_file; T_L layers of the sizes in test_models.h */
extern const struct arch_test gpt_test;

#endif
