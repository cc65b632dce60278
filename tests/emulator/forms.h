/* forms.h: loads, stores and atomics, whose names are made of parts: what a name asks for. */
#ifndef TESTS_EMULATOR_FORMS_H
#define TESTS_EMULATOR_FORMS_H

#include "emulator.h"

struct form {
    insn_fn run;
    char signature[24];
    uint8_t vector, space;
};

/* False: not such an instruction, or one with a part that is not known. register_bits: of the widest register among the
 * first operands. */
bool memory_form(const char *name, uint32_t register_bits, struct form *out);

#endif
