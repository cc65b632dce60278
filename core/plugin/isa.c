/* isa.c: which WK_ISA_* level this processor and operating system can run, what the levels are called, and which of a
 * format's products is taken. */
#include <stdio.h>
#include <string.h>

#include "plugin/format.h"
#include "plugin/plugin.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Intel SDM vol. 1, 13.3 and 14.3: a feature bit counts only if the system saves the registers, which XCR0 tells. */
static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

uint32_t plugin_detect_isa(void)
{
    enum { YMM_STATE = 0x6, ZMM_STATE = 0xe6 }; /* SSE and AVX; besides: mask registers, upper halves, upper sixteen */
    const uint32_t leaf1 = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    const uint32_t avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ,
                   avx512_c = bit_AVX512VBMI | bit_AVX512VNNI;
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & leaf1) != leaf1) return WK_ISA_PORTABLE;
    const uint64_t saved = read_xcr0();
    if ((saved & YMM_STATE) != YMM_STATE) return WK_ISA_PORTABLE;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return WK_ISA_PORTABLE;
    if ((saved & ZMM_STATE) != ZMM_STATE || (b & avx512) != avx512 || (c & avx512_c) != avx512_c) return WK_ISA_AVX2;
    return WK_ISA_AVX512;
}
#else
uint32_t plugin_detect_isa(void) { return WK_ISA_PORTABLE; }
#endif

static const char *const names[FORMAT_ISAS] = { "portable", "avx2", "avx512" };

const char *plugin_isa_name(uint32_t isa) { return isa < FORMAT_ISAS ? names[isa] : "?"; }

wk_status plugin_isa_named(const char *name, uint32_t here, uint32_t *isa, const struct wk_err *err)
{
    char known[64] = "", has[64] = "";
    *isa = FORMAT_ISAS;
    for (uint32_t i = 0; i < FORMAT_ISAS; i++) {
        if (strcmp(name, names[i]) == 0) *isa = i;
        (void)snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", names[i]);
        if (i == here) memcpy(has, known, sizeof has);
    }
    if (*isa == FORMAT_ISAS)
        return wk_fail(err, WK_INVALID, "%.64s is no instruction set; expected one of %s", name, known);
    if (*isa > here) return wk_fail(err, WK_UNSUPPORTED, "this processor has no %s; it has %s", name, has);
    return WK_OK;
}

format_product format_product_of(const struct wk_type_cpu *t, uint32_t isa)
{
    for (uint32_t i = 0; i < t->n_products; i++)
        if (t->products[i].isa == isa) return t->products[i].product;
    return NULL;
}

/* The host's order of preference. On x86-64 each of these levels has all that stands behind it. */
format_product format_product_for(const struct wk_type_cpu *t, uint32_t isa)
{
    static const uint32_t best_first[] = { WK_ISA_AVX512, WK_ISA_AVX2, WK_ISA_PORTABLE };
    bool runs = false;
    for (size_t i = 0; i < sizeof best_first / sizeof *best_first; i++) {
        runs = runs || best_first[i] == isa;
        const format_product product = runs ? format_product_of(t, best_first[i]) : NULL;
        if (product) return product;
    }
    return NULL;
}
