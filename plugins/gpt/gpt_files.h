/* gpt_files.h: toy files of GPT-2 and GPT-OSS, for the plugin's tests. */
#ifndef PLUGINS_GPT_GPT_FILES_H
#define PLUGINS_GPT_GPT_FILES_H

#include "tape/test_models.h"

enum gpt_file { GPT2, GPT2_UNTIED, GPT_OSS, GPTOSS, GPT_FILES }; /* GPTOSS: as ollama names it and its tensors */

const char *gpt_file_architecture(enum gpt_file which);
struct gguf_build *gpt_file(enum gpt_file which); /* T_L layers of the sizes in tape/test_models.h */
const struct wk_arch *gpt_arch(void); /* from gpt.so, through its one symbol; ends the program if it cannot be loaded */

#endif
