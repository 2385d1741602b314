/*
 * Plumbline's changes to user-mode QEMU: the alignment policy's option, and a log of faults.
 *
 * A record shows where a program was when it received a synchronous signal (event "fault"), or when it made a
 * misaligned access that is only reported (event "access"): registers, the instruction's bytes, a slice of the stack
 * and the map of loaded objects. The affected process writes it, so forked children and threads are covered. It is one
 * write() of one line to a file opened with O_APPEND, so records of several processes do not mix. A reported access is
 * recorded in full the first time. Its count is written whenever it has doubled (event "count"), because a killed
 * process cannot write any more; a process that ends by itself writes the exact counts. A fault that an instruction
 * repeats is recorded in full FAULTS_IN_FULL times, and then counted in the same way (event "repeat"). The last line of
 * a process says how it ended (event "end"). With -log-ends, the line before it shows where a process was when it exited
 * with a status other than 0, or received a signal that no instruction raised and that kills it (event "last"), and
 * the log names each system call that the program asked for and the emulator lacks (event "lacking").
 *
 * A guest can close descriptors that are not its own, or limit the size of files, so that lines are lost. The host may
 * therefore put a file with two 64-bit zeros beside the log, FILE.counts. The emulator counts there, in shared memory,
 * the lines that it began and those that it wrote completely.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qemu/host-utils.h"
#include "qemu/error-report.h"
#include "qemu/selfmap.h"
#include "qemu.h"
#include "user-internals.h"
#include "user/signal.h"
#include "user/page-protection.h"
#include "exec/gdbstub.h"
#include "exec/cpu-common.h"
#include "tcg/insn-start-words.h"
#include "tcg/plumbline.h"
#include "tcg/plumbline_loads.h"
#include "plumbline.h"

#pragma GCC diagnostic error "-Wall"
#pragma GCC diagnostic error "-Wextra"
#pragma GCC diagnostic ignored "-Wsign-compare" /* ARRAY_SIZE, sizes from GLib: QEMU's own idiom */

enum { REGISTERS_LOGGED = 96, STACK_LOGGED = 16 * KiB, INSTRUCTION_LOGGED = 16, FAULTS_IN_FULL = 8 };

/* AccessClass of harness/core/model.py. From CLASS_EXCLUSIVE on, no compiler splits an access. */
enum {
    CLASS_HALF, CLASS_WORD, CLASS_DWORD, CLASS_MULTI, CLASS_PAIR, CLASS_VFP, CLASS_NEON, CLASS_FLOAT, CLASS_DOUBLE,
    CLASS_EXCLUSIVE, CLASS_ACQUIRE, CLASS_SWAP, CLASS_CAS, CLASS_LINKED, CLASS_STACK, CLASS_OTHER, CLASSES
};
static const char *const class_names[CLASSES] = {
    "half", "word", "dword", "multi", "pair", "vfp", "neon", "float", "double",
    "exclusive", "acquire", "swap", "cas", "linked", "stack", "other"
};

/*
 * signal: SIGBUS. fixup: the access succeeds, as with a kernel that repairs it. ignore: the behaviour of hardware whose
 * check is off. Before ARMv6, such hardware clears the address's low bits and rotates a loaded word.
 */
enum { ACTION_SIGNAL, ACTION_FIXUP, ACTION_IGNORE, ACTIONS };
static const char *const action_names[ACTIONS] = { "signal", "fixup", "ignore" };

__thread unsigned plumbline_rotation;

static int fault_log = -1;
static char *fault_log_path;
static struct stat fault_log_status;
static struct {
    uint64_t begun, written;
} *lines;
static int demand;
static const char *alignment = ""; /* the option */
static bool reporting;
static unsigned assumed = 16; /* compilers are assumed to split wider accesses: Solaris' -xmemalign */
static uint8_t actions[CLASSES];

/* The last misaligned access of this thread. */
static __thread struct {
    vaddr pc, address;
    unsigned size; /* of the unit whose alignment counts */
    unsigned step; /* the bytes that the emulator moves at once: several units if they are adjacent */
    unsigned hint; /* the alignment that the instruction itself demands; otherwise 0 */
    unsigned parts; /* of the same instruction that still follow: they are no separate accesses */
    int class;
    bool is_store;
    bool is_pending; /* it raises SIGBUS, and the record of the signal must describe it */
    vaddr raised_at;
    vaddr stacked; /* the instruction whose stack pointer has just been reported: its access is not reported again */
} last;

static int index_of(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (g_str_equal(name, names[i])) {
            return i;
        }
    }
    return -1;
}

static bool set_word(const char *key, const char *value)
{
    static const char *const demands[] = { "arch", "natural", "none" };

    if (!value) {
        reporting = g_str_equal(key, "report");
        return reporting;
    }
    if (g_str_equal(key, "demand")) {
        demand = index_of(value, demands, ARRAY_SIZE(demands));
        return demand >= 0;
    }
    if (g_str_equal(key, "assumed")) {
        assumed = atoi(value);
        return is_power_of_2(assumed) && assumed <= 16;
    }
    int class = index_of(key, class_names, CLASSES), action = index_of(value, action_names, ACTIONS);
    if (action >= 0 && g_str_equal(key, "all")) {
        memset(actions, action, sizeof(actions));
        return true;
    }
    if (class < 0 || action < 0) {
        return false;
    }
    actions[class] = action;
    return true;
}

const char *plumbline_alignment(void)
{
    return alignment;
}

void plumbline_set_alignment(const char *policy)
{
    alignment = policy;
    g_auto(GStrv) words = g_strsplit(policy, ",", -1);

    for (char **word = words; *word; word++) {
        g_auto(GStrv) pair = g_strsplit(*word, "=", 2);

        if (!set_word(pair[0], pair[1])) {
            error_report("-alignment: '%s' is none of demand=arch|natural|none, assumed=1|2|4|8|16, report, "
                         "CLASS|all=signal|fixup|ignore", *word);
            exit(EXIT_FAILURE);
        }
    }
}

#if defined(TARGET_AARCH64)
static int classify(G_GNUC_UNUSED CPUArchState *env, vaddr pc, G_GNUC_UNUSED unsigned size)
{
    uint32_t insn = ldl_le_p(g2h_untagged(pc));

    if ((insn & 0x3f000000) == 0x08000000) { /* exclusives, ordered, compare and swap */
        bool ordered = extract32(insn, 23, 1), o1 = extract32(insn, 21, 1), narrow = !extract32(insn, 31, 1);

        if (o1 && (ordered || narrow)) {
            return CLASS_CAS;
        }
        return ordered ? CLASS_ACQUIRE : CLASS_EXCLUSIVE;
    }
    if ((insn & 0x3f200c00) == 0x38200000) { /* atomic memory operations; among them LDAPR */
        return extract32(insn, 12, 3) == 4 && extract32(insn, 15, 1) ? CLASS_ACQUIRE : CLASS_CAS;
    }
    if ((insn & 0x3f200c00) == 0x19000000) { /* LDAPUR, STLUR */
        return CLASS_ACQUIRE;
    }
    if ((insn & 0x3a000000) == 0x28000000) {
        return CLASS_PAIR;
    }
    if (extract32(insn, 26, 1)) {
        return CLASS_NEON;
    }
    return size == 2 ? CLASS_HALF : size == 4 ? CLASS_WORD : size == 8 ? CLASS_DWORD : CLASS_OTHER;
}
#elif defined(TARGET_ARM)
static int classify_thumb(uint16_t first, uint16_t second)
{
    if (first >> 11 < 0x1d) { /* 16 bits */
        switch (first >> 12) {
        case 0x4: case 0x6: case 0x9:
            return CLASS_WORD;
        case 0x5:
            return extract32(first, 9, 1) ? CLASS_HALF : CLASS_WORD;
        case 0x8:
            return CLASS_HALF;
        default:
            return CLASS_MULTI; /* LDM, STM, PUSH, POP */
        }
    }
    if ((first & 0xfe40) == 0xe800) {
        return CLASS_MULTI;
    }
    if ((first & 0xffe0) == 0xe840 || ((first & 0xffe0) == 0xe8c0 && extract32(second, 6, 1))) {
        return CLASS_EXCLUSIVE;
    }
    if ((first & 0xffe0) == 0xe8c0) {
        return extract32(second, 7, 1) ? CLASS_ACQUIRE : CLASS_OTHER;
    }
    if ((first & 0xfe40) == 0xe840) {
        return CLASS_DWORD;
    }
    if ((first & 0xff10) == 0xf900) {
        return CLASS_NEON;
    }
    if ((first & 0xfe00) == 0xf800) {
        return extract32(first, 5, 2) == 1 ? CLASS_HALF : CLASS_WORD;
    }
    return (first & 0xee00) == 0xec00 ? CLASS_VFP : CLASS_OTHER;
}

static int classify(G_GNUC_UNUSED CPUArchState *env, vaddr pc, G_GNUC_UNUSED unsigned size)
{
    if (env->thumb) {
        return classify_thumb(lduw_le_p(g2h_untagged(pc)), lduw_le_p(g2h_untagged(pc + 2)));
    }
    uint32_t insn = ldl_le_p(g2h_untagged(pc));

    if ((insn & 0xff100000) == 0xf4000000) {
        return CLASS_NEON;
    }
    if ((insn & 0x0e000000) == 0x08000000) {
        return CLASS_MULTI;
    }
    if ((insn & 0x0c000000) == 0x04000000) {
        return CLASS_WORD;
    }
    if ((insn & 0x0e000000) == 0x0c000000) {
        return CLASS_VFP;
    }
    if ((insn & 0x0e000090) == 0x00000090) {
        switch (extract32(insn, 5, 2)) {
        case 0:
            if (!extract32(insn, 23, 1)) {
                return CLASS_SWAP;
            }
            return extract32(insn, 8, 2) == 0 ? CLASS_ACQUIRE : CLASS_EXCLUSIVE;
        case 1:
            return CLASS_HALF;
        default:
            return extract32(insn, 20, 1) ? CLASS_HALF : CLASS_DWORD;
        }
    }
    return CLASS_OTHER;
}
#elif defined(TARGET_SPARC)
static int classify(G_GNUC_UNUSED CPUArchState *env, vaddr pc, G_GNUC_UNUSED unsigned size)
{
    switch (extract32(ldl_be_p(g2h_untagged(pc)), 19, 6) & ~0x10) { /* without the alternate-space bit */
    case 0x20: case 0x24:
        return CLASS_FLOAT;
    case 0x22: case 0x23: case 0x26: case 0x27:
        return CLASS_DOUBLE;
    case 0x0f:
        return CLASS_SWAP;
    case 0x2c: case 0x2e:
        return CLASS_CAS;
    }
    return size == 2 ? CLASS_HALF : size == 4 ? CLASS_WORD : size == 8 ? CLASS_DWORD : CLASS_OTHER;
}
#else
/* An instruction's word of 4 or 2 bytes, in the machine's order. */
static G_GNUC_UNUSED uint32_t word_at(vaddr pc)
{
    return TARGET_BIG_ENDIAN ? ldl_be_p(g2h_untagged(pc)) : ldl_le_p(g2h_untagged(pc));
}

static G_GNUC_UNUSED unsigned half_at(vaddr pc)
{
    return TARGET_BIG_ENDIAN ? lduw_be_p(g2h_untagged(pc)) : lduw_le_p(g2h_untagged(pc));
}

/* The opcode, in its place on most machines with 32-bit instructions. */
static G_GNUC_UNUSED unsigned opcode_at(vaddr pc)
{
    return extract32(word_at(pc), 26, 6);
}

static G_GNUC_UNUSED int classify_as_float(unsigned size)
{
    return size == 4 ? CLASS_FLOAT : size == 8 ? CLASS_DOUBLE : CLASS_OTHER;
}

#if defined(TARGET_ALPHA)
/* Alpha Architecture Handbook, C.1: 0x20 to 0x27 are floating point, of 4 and 8 bytes in turn. */
static int classify_special(vaddr pc, unsigned size)
{
    unsigned opcode = opcode_at(pc);

    if (opcode >= 0x20 && opcode <= 0x27) {
        return classify_as_float(size);
    }
    return opcode == 0x2a || opcode == 0x2b || opcode == 0x2e || opcode == 0x2f ? CLASS_LINKED : CLASSES;
}
#elif defined(TARGET_HPPA)
/* PA-RISC 1.1 Architecture, appendix C: opcode 03 with extension 5 or 7 is LDCD, LDCW. */
static int classify_special(vaddr pc, unsigned size)
{
    uint32_t insn = word_at(pc);
    unsigned opcode = opcode_at(pc);

    if (opcode == 0x09 || opcode == 0x0b || opcode == 0x16 || opcode == 0x1e) {
        return classify_as_float(size);
    }
    return opcode == 0x03 && (extract32(insn, 6, 4) | 2) == 7 ? CLASS_SWAP : CLASSES;
}
#elif defined(TARGET_LOONGARCH64)
/*
 * LoongArch Reference Manual, volume 1, appendix B. The class `other` has the accesses that Linux does not repair
 * (arch/loongarch/kernel/unaligned.c, emulate_load_store_insn()): vectors, their elements, and accesses with a bound.
 */
static int classify_special(vaddr pc, unsigned size)
{
    uint32_t insn = word_at(pc);
    unsigned major = insn >> 24, extended = extract32(insn, 15, 9);

    switch (major) {
    case 0x20: case 0x21: case 0x22: case 0x23: /* LL.W, SC.W, LL.D, SC.D */
        return CLASS_LINKED;
    case 0x2b: /* FLD.S to FST.D */
        return classify_as_float(size);
    case 0x2c: case 0x30: case 0x31: case 0x32: case 0x33: /* VLD to XVST, VLDREPL to XVSTELM */
        return CLASS_OTHER;
    case 0x38:
        if (extended >= 0x60 && extended < 0x80) { /* FLDX.S to FSTX.D */
            return classify_as_float(size);
        }
        if (extended >= 0xc0 && extended < 0xe4) { /* AMSWAP.W to AMMIN_DB.DU */
            return CLASS_CAS;
        }
        return extended >= 0x80 ? CLASS_OTHER : CLASSES; /* VLDX to XVSTX, FLDGT.S to STLE.D */
    }
    return CLASSES;
}

/* XVLD, XVST, XVLDX, XVSTX: of 32 bytes, which QEMU moves by eight. */
static bool is_of_256_bits(uint32_t insn)
{
    return insn >> 23 == 0x59 || (insn >> 15 & ~8u) == 0x7090;
}
#elif defined(TARGET_M68K)
/* M68000 Family Programmer's Reference Manual, 8.1: line F with coprocessor 1 is floating point. */
static int classify_special(vaddr pc, unsigned size)
{
    return half_at(pc) >> 9 == 0x79 ? classify_as_float(size) : CLASSES;
}
#elif defined(TARGET_MIPS)
static int classify_special(vaddr pc, unsigned size)
{
    switch (opcode_at(pc)) {
    case 0x13: /* COP1X: LWXC1, LDXC1, SWXC1, SDXC1 */
        return classify_as_float(size);
    case 0x30: case 0x34: case 0x38: case 0x3c:
        return CLASS_LINKED;
    case 0x31: case 0x39:
        return CLASS_FLOAT;
    case 0x35: case 0x3d:
        return CLASS_DOUBLE;
    }
    return CLASSES;
}
#elif defined(TARGET_PPC)
/* Power ISA 2.06, appendix F: 46, 47 are LMW, STMW; 48 to 55 floating point; 31 has the rest, indexed. */
static int classify_special(vaddr pc, unsigned size)
{
    unsigned opcode = opcode_at(pc);

    if (opcode == 46 || opcode == 47) {
        return CLASS_MULTI;
    }
    if ((opcode >= 48 && opcode <= 55) || opcode == 57 || opcode == 61) { /* 57, 61: LFDP, STFDP */
        return classify_as_float(size);
    }
    switch (opcode == 31 ? extract32(word_at(pc), 1, 10) : 0) {
    case 20: case 52: case 84: case 116: case 276: case 150: case 182: case 214: case 694: case 726:
        return CLASS_LINKED;
    case 535: case 567: case 599: case 631: case 663: case 695: case 727: case 759: case 983:
    case 791: case 919: case 855: case 887: /* LFDPX, STFDPX, LFIWAX, LFIWZX */
        return classify_as_float(size);
    case 780: case 908: /* LXVW4X, STXVW4X: of words, whatever the emulator moves at once */
        return CLASS_WORD;
    }
    return CLASSES;
}
#elif defined(TARGET_RISCV)
/* The RISC-V Instruction Set Manual, volume I, 24 (major opcodes) and 16.8 (compressed instructions). */
static int classify_special(vaddr pc, unsigned size)
{
    unsigned insn = half_at(pc);

    if ((insn & 3) != 3) {
        return extract32(insn, 13, 2) == 1 ? CLASS_DOUBLE : CLASSES; /* C.FLD, C.FSD, C.FLDSP, C.FSDSP */
    }
    switch (extract32(insn, 0, 7)) {
    case 0x07: case 0x27:
        return classify_as_float(size);
    case 0x2f:
        return extract32(word_at(pc), 28, 4) == 1 ? CLASS_LINKED : CLASS_CAS; /* LR and SC, or AMO */
    }
    return CLASSES;
}
#elif defined(TARGET_S390X)
/* ASI, ALSI, AGSI, ALGSI: they add to memory, interlocked if it is aligned (z/Architecture, 7, ADD IMMEDIATE). */
static bool adds_to_memory(vaddr pc)
{
    return half_at(pc) >> 8 == 0xeb && (half_at(pc + 4) & 0xeb) == 0x6a;
}

/* z/Architecture Principles of Operation, appendix B. */
static int classify_special(vaddr pc, unsigned size)
{
    unsigned first = half_at(pc) >> 8, last = half_at(pc + 4) & 0xff;

    switch (first) {
    case 0xba: case 0xbb: /* CS, CDS */
        return CLASS_CAS;
    case 0x90: case 0x98: /* STM, LM */
        return CLASS_MULTI;
    case 0x60: case 0x68: case 0x70: case 0x78: /* STD, LD, STE, LE */
        return classify_as_float(size);
    case 0xed:
        return last >= 0x64 && last <= 0x67 ? classify_as_float(size) : CLASSES;
    case 0xeb: /* STMG, LMG and STMY, LMY; CSY, CSG, CDSY, CDSG; the interlocked LAN to LAALG */
        if (last == 0x24 || last == 0x04 || last == 0x90 || last == 0x98) {
            return CLASS_MULTI;
        }
        switch (last) {
        case 0x14: case 0x30: case 0x31: case 0x3e:
        case 0xe4: case 0xe6: case 0xe7: case 0xe8: case 0xea: /* LANG, LAOG, LAXG, LAAG, LAALG */
        case 0xf4: case 0xf6: case 0xf7: case 0xf8: case 0xfa: /* LAN, LAO, LAX, LAA, LAAL */
            return CLASS_CAS;
        }
        return CLASSES;
    }
    return CLASSES;
}
#else
static int classify_special(G_GNUC_UNUSED vaddr pc, G_GNUC_UNUSED unsigned size)
{
    return CLASSES;
}
#endif

static int classify(G_GNUC_UNUSED CPUArchState *env, vaddr pc, unsigned size)
{
    int special = classify_special(pc, size);

    if (special != CLASSES) {
        return special;
    }
    return size == 2 ? CLASS_HALF : size == 4 ? CLASS_WORD : size == 8 ? CLASS_DWORD : CLASS_OTHER;
}
#endif

/* A store-exclusive, which reads before it writes: it compares the memory with the result of the load. */
static bool is_store_exclusive(G_GNUC_UNUSED CPUArchState *env, G_GNUC_UNUSED vaddr pc, G_GNUC_UNUSED int class)
{
#if defined(TARGET_AARCH64)
    return class == CLASS_EXCLUSIVE && !extract32(ldl_le_p(g2h_untagged(pc)), 22, 1);
#elif defined(TARGET_ARM)
    return class == CLASS_EXCLUSIVE && !(env->thumb ? extract32(lduw_le_p(g2h_untagged(pc)), 4, 1)
                                                    : extract32(ldl_le_p(g2h_untagged(pc)), 20, 1));
#elif defined(TARGET_LOONGARCH64)
    return class == CLASS_LINKED && extract32(word_at(pc), 24, 1);
#elif defined(TARGET_MIPS)
    return class == CLASS_LINKED && opcode_at(pc) >= 0x38;
#elif defined(TARGET_ALPHA)
    return class == CLASS_LINKED && opcode_at(pc) >= 0x2e;
#elif defined(TARGET_PPC)
    if (class == CLASS_LINKED) {
        switch (extract32(word_at(pc), 1, 10)) { /* not the bit below, which is the hint EH of a load */
        case 150: case 182: case 214: case 694: case 726: /* STWCX., STQCX., STDCX., STBCX., STHCX. */
            return true;
        }
    }
    return false;
#elif defined(TARGET_RISCV)
    return class == CLASS_LINKED && extract32(word_at(pc), 27, 1);
#else
    return false;
#endif
}

/* Whether an instruction reads, changes and writes: QEMU makes two accesses of it. */
static bool is_update(CPUArchState *env, vaddr pc, int class)
{
#ifdef TARGET_S390X
    if (adds_to_memory(pc)) {
        return true;
    }
#endif
    return class == CLASS_SWAP || class == CLASS_CAS || is_store_exclusive(env, pc, class);
}

static bool is_natural_at(const CPUState *cpu, vaddr pc)
{
    const struct image_info *program = get_task_state(cpu)->info;

    /* A libc for the architecture uses everything that it allows: memcpy by misaligned words, even before main(). */
    return demand == PLUMBLINE_NATURAL && pc >= program->start_code && pc < program->end_code;
}

#if defined(TARGET_AARCH64)
/* LD1 to LD4, ST1 to ST4: of structures, or of one element of each (ARM DDI 0487, C4.1.94). */
static bool is_of_structures(uint32_t insn)
{
    return (insn & 0xbe000000) == 0x0c000000;
}

static unsigned unit_of(uint32_t insn, int class, unsigned size)
{
    if (class == CLASS_PAIR) {
        return extract32(insn, 26, 1) ? 4 << extract32(insn, 30, 2) : 4 << extract32(insn, 31, 1);
    }
    if (class != CLASS_NEON || !is_of_structures(insn)) {
        return size;
    }
    if (!extract32(insn, 24, 1)) {
        return 1 << extract32(insn, 10, 2);
    }
    switch (extract32(insn, 14, 2)) {
    case 2:
        return extract32(insn, 10, 1) ? 8 : 4;
    case 3: /* to all lanes */
        return 1 << extract32(insn, 10, 2);
    default:
        return 1 << extract32(insn, 14, 2);
    }
}

static unsigned hint_of(G_GNUC_UNUSED uint32_t insn, G_GNUC_UNUSED int class, G_GNUC_UNUSED MemOp op)
{
    return 0;
}

/* The number of QEMU's memory accesses for a load or store of structures. */
static unsigned elements_of(uint32_t insn)
{
    static const uint8_t registers[16] = {
        [0] = 4, [2] = 4, [4] = 3, [6] = 3, [7] = 1, [8] = 2, [10] = 2
    };
    unsigned opcode = extract32(insn, 12, 4), words = extract32(insn, 30, 1) ? 2 : 1;

    if (extract32(insn, 24, 1)) {
        return (extract32(insn, 13, 1) << 1 | extract32(insn, 21, 1)) + 1;
    }
    /* Bit 1 of the opcode: one register after the other, 8 bytes at once. */
    return registers[opcode] * words * (opcode & 2 ? 1 : 8 >> extract32(insn, 10, 2));
}
#elif defined(TARGET_ARM)
/* The element of a NEON load or store (ARM DDI 0406C, A7.7). */
static unsigned element_of(uint32_t insn)
{
    if (!extract32(insn, 23, 1)) {
        return 1 << extract32(insn, 6, 2);
    }
    if (extract32(insn, 10, 2) != 3) {
        return 1 << extract32(insn, 10, 2);
    }
    return 1 << MIN(extract32(insn, 6, 2), 2); /* to all lanes: for VLD4, 3 means 32 bits */
}

static bool is_of_several_vfp(uint32_t insn, int class)
{
    return class == CLASS_VFP && (insn & 0x01200000) != 0x01000000; /* VLDM, VSTM, not VLDR, VSTR */
}

static unsigned unit_of(uint32_t insn, int class, unsigned size)
{
    /* Compilers push double registers where the stack is a multiple of 4. */
    return class == CLASS_NEON ? element_of(insn) : is_of_several_vfp(insn, class) ? MIN(size, 4) : size;
}

/* The tables of alignments in A8.8.320 to A8.8.330, and of VST1 to VST4. */
static unsigned hint_of(uint32_t insn, int class, G_GNUC_UNUSED MemOp op)
{
    unsigned element = element_of(insn), registers = extract32(insn, 8, 2) + 1;

    if (class != CLASS_NEON) {
        return 0;
    }
    if (!extract32(insn, 23, 1)) {
        return extract32(insn, 4, 2) ? 4 << extract32(insn, 4, 2) : 0;
    }
    if (extract32(insn, 10, 2) == 3) { /* to all lanes */
        if (!extract32(insn, 4, 1)) {
            return 0;
        }
        return registers != 4 || element < 4 ? registers * element : extract32(insn, 6, 2) == 3 ? 16 : 8;
    }
    if (registers == 4 && element == 4) {
        return extract32(insn, 4, 2) ? 4 << extract32(insn, 4, 2) : 0;
    }
    return extract32(insn, 4, 1) ? registers * element : 0;
}

/* The number of QEMU's memory accesses for a NEON load or store of structures. */
static unsigned elements_of(uint32_t insn)
{
    /* By the type in bits 8 to 11 of VLDn and VSTn (multiple structures). */
    static const struct {
        uint8_t registers;
        bool is_interleaved;
    } multiple[16] = {
        [0] = { 4, true }, [1] = { 4, true }, [2] = { 4 }, [3] = { 4, true }, [4] = { 3, true }, [5] = { 3, true },
        [6] = { 3 }, [7] = { 1 }, [8] = { 2, true }, [9] = { 2, true }, [10] = { 2 }
    };

    if (extract32(insn, 23, 1)) { /* to one lane, or to all */
        return extract32(insn, 8, 2) + 1;
    }
    unsigned type = extract32(insn, 8, 4);
    return multiple[type].registers * (multiple[type].is_interleaved ? 8 >> extract32(insn, 6, 2) : 1);
}
#else
static unsigned unit_of(G_GNUC_UNUSED uint32_t insn, G_GNUC_UNUSED int class, unsigned size)
{
#if defined(TARGET_PPC)
    return class == CLASS_WORD ? 4 : size;
#elif defined(TARGET_LOONGARCH64)
    return is_of_256_bits(insn) ? 32 : size;
#else
    return size;
#endif
}

/* A block access of SPARC has a hint. The 32 bytes of a LoongArch vector are its unit, and no hint. */
static unsigned hint_of(uint32_t insn, int class, MemOp op)
{
    unsigned alignment = 1 << memop_alignment_bits(op);

    return alignment > MAX(memop_size(op), unit_of(insn, class, memop_size(op))) ? alignment : 0;
}
#endif

/* The instruction, if it has 32 bits; otherwise only its class counts. */
static uint32_t insn_at(G_GNUC_UNUSED CPUArchState *env, G_GNUC_UNUSED vaddr pc)
{
#if defined(TARGET_AARCH64)
    return ldl_le_p(g2h_untagged(pc));
#elif defined(TARGET_ARM)
    uint16_t half = lduw_le_p(g2h_untagged(pc)), next = lduw_le_p(g2h_untagged(pc + 2));

    return env->thumb ? (uint32_t)half << 16 | next : (uint32_t)next << 16 | half;
#elif defined(TARGET_LOONGARCH64)
    return word_at(pc);
#else
    return 0;
#endif
}

/* The number of accesses into which QEMU divides an instruction of a class. */
static unsigned parts_of(G_GNUC_UNUSED CPUArchState *env, G_GNUC_UNUSED vaddr pc, int class)
{
    /* An instruction's own demand concerns its first unit; natural alignment concerns all units. */
    G_GNUC_UNUSED bool is_every_unit = is_natural_at(env_cpu(env), pc) && last.address % last.step;
    G_GNUC_UNUSED uint32_t insn = insn_at(env, pc);

    if (is_update(env, pc, class)) {
        return 2;
    }
#ifdef TARGET_SPARC
    unsigned operation = extract32(ldl_be_p(g2h_untagged(pc)), 19, 6) & ~0x10;

    if (operation == 0x22 || operation == 0x26) { /* LDQF, STQF */
        return 2;
    }
    if (last.hint == 64) { /* LDDFA, STDFA of a block */
        return is_every_unit ? 8 : 1;
    }
#endif
#ifdef TARGET_PPC
    unsigned opcode = opcode_at(pc), extended = opcode == 31 ? extract32(word_at(pc), 1, 10) : 0;

    switch (extended) {
    case 780: case 844: case 908: case 972: /* LXVW4X, LXVD2X, STXVW4X, STXVD2X */
    case 791: case 919: /* LFDPX, STFDPX */
        return 2;
    }
    if (opcode == 57 || opcode == 61) {
        return 2;
    }
#endif
#ifdef TARGET_S390X
    if (class == CLASS_MULTI) {
        unsigned registers = half_at(pc) & 0xff;

        return (((registers & 15) - (registers >> 4)) & 15) + 1;
    }
#endif
#if defined(TARGET_AARCH64)
    if (class == CLASS_PAIR) {
        return extract32(insn, 26, 1) ? 2 : 1;
    }
    if (class == CLASS_NEON && is_of_structures(insn)) {
        return elements_of(insn);
    }
#elif defined(TARGET_ARM)
    if (class == CLASS_NEON) {
        return is_every_unit ? elements_of(insn) : 1;
    }
    if (class == CLASS_MULTI) {
        unsigned half = insn >> 16;
        bool is_short = env->thumb && half >> 11 < 0x1d;

        /* In PUSH and POP, bit 8 stands for LR or PC; in LDM and STM, it is part of the base register's number. */
        return ctpop16(is_short ? half & (half >> 12 == 0xb ? 0x1ff : 0xff) : insn & 0xffff);
    }
    if (is_of_several_vfp(insn, class)) {
        return extract32(insn, 8, 1) ? extract32(insn, 1, 7) : extract32(insn, 0, 8);
    }
#endif
    return 1;
}

vaddr plumbline_pc_of(CPUState *cpu, uintptr_t host_pc)
{
    uint64_t data[TARGET_INSN_START_WORDS];

    if (!cpu_unwind_state_data(cpu, host_pc, data)) {
        return cpu->cc->get_pc(cpu);
    }
#ifdef TARGET_HPPA
    data[0] &= ~(uint64_t)3; /* the privilege level */
#endif
    /* The first word of a translated instruction's state is its address, or its offset in the page of PC. */
    return tcg_cflags_has(cpu, CF_PCREL) ? (cpu->cc->get_pc(cpu) & TARGET_PAGE_MASK) | data[0] : data[0];
}

void plumbline_translating(CPUState *cpu, vaddr pc)
{
    plumbline_demand = demand == PLUMBLINE_NATURAL && !is_natural_at(cpu, pc) ? PLUMBLINE_ARCH : demand;
}

/* With a descriptor above those that a guest expects for its own files. */
static bool open_fault_log(void)
{
    int low = open(fault_log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    int high = low < 0 ? low : fcntl(low, F_DUPFD_CLOEXEC, 900);

    fault_log = high < 0 ? low : high;
    if (high >= 0) {
        close(low);
    }
    return fault_log >= 0 && fstat(fault_log, &fault_log_status) == 0;
}

static void map_line_counts(void)
{
    g_autofree char *path = g_strconcat(fault_log_path, ".counts", NULL);
    struct stat status;
    int file = open(path, O_RDWR | O_CLOEXEC);

    if (file < 0) {
        return;
    }
    if (fstat(file, &status) == 0 && status.st_size >= sizeof(*lines)) {
        lines = mmap(NULL, sizeof(*lines), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (lines == MAP_FAILED) {
            lines = NULL;
        }
    }
    close(file);
}

void plumbline_set_fault_log(const char *path)
{
    fault_log_path = g_canonicalize_filename(path, NULL);
    if (!open_fault_log()) {
        error_report("-fault-log: cannot open '%s': %s", path, strerror(errno));
        exit(EXIT_FAILURE);
    }
    map_line_counts();
}

/* Whether the descriptor is still that of the log: a guest may have closed it, and opened another file with it. */
static bool is_fault_log_open(void)
{
    struct stat status;

    return fstat(fault_log, &status) == 0 && status.st_dev == fault_log_status.st_dev
           && status.st_ino == fault_log_status.st_ino;
}

static void append_hex(GString *line, const uint8_t *bytes, size_t length)
{
    /* A record has 16 KiB of stack. To format them with printf would take longer than the rest of a fault. */
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < length; i++) {
        char pair[] = { digits[bytes[i] >> 4], digits[bytes[i] & 15] };

        g_string_append_len(line, pair, sizeof(pair));
    }
}

/* The readable part of [address, address + length), in pieces that do not cross a page. */
static void append_memory(GString *line, CPUState *cpu, vaddr address, size_t length)
{
    while (length) {
        uint8_t bytes[256];
        size_t piece = MIN(MIN(length, sizeof(bytes)), 256 - (address & 255));

        if (cpu_memory_rw_debug(cpu, address, bytes, piece, false) != 0) {
            break;
        }
        append_hex(line, bytes, piece);
        address += piece;
        length -= piece;
    }
}

static void append_maps(GString *line)
{
    IntervalTreeRoot *maps = read_self_maps();
    const char *separator = "";

    for (IntervalTreeNode *node = interval_tree_iter_first(maps, 0, -1); node;
         node = interval_tree_iter_next(node, 0, -1)) {
        const MapInfo *map = container_of(node, MapInfo, itree);

        if (!map->path || map->path[0] != '/' || !h2g_valid((void *)node->start)) {
            continue;
        }
        g_autofree char *path = g_strescape(map->path, NULL);
        g_string_append_printf(line, "%s{\"start\":%" PRIu64 ",\"end\":%" PRIu64 ",\"offset\":%" PRIu64
                               ",\"path\":\"%s\"}", separator,
                               (uint64_t)h2g_nocheck(node->start), (uint64_t)h2g_nocheck(node->last) + 1,
                               map->offset, path);
        separator = ",";
    }
    free_self_maps(maps);
}

/* If a guest limits the size of files, the log must not make it die of a signal. */
static ssize_t write_within_limits(const GString *line)
{
    static const struct timespec at_once;
    sigset_t limit, before;

    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, &before);
    ssize_t length = write(fault_log, line->str, line->len);
    int error = errno;
    if (length < 0 && error == EFBIG) {
        sigtimedwait(&limit, NULL, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return length;
}

static void write_line(const GString *line)
{
    if (lines) {
        qatomic_inc(&lines->begun);
    }
    if ((is_fault_log_open() || open_fault_log()) && write_within_limits(line) == line->len) {
        if (lines) {
            qatomic_inc(&lines->written);
        }
        return;
    }
    error_report("-fault-log: a record was cut short: %s", strerror(errno));
}

#ifdef TARGET_HPPA
/* The start of a slice of mapped memory that ends at the top of a stack that grows upward. */
static vaddr stack_below(vaddr top)
{
    vaddr start = top;

    while (top - start < STACK_LOGGED - 256 && page_check_range(start - 256, 256, PAGE_READ)) {
        start -= 256;
    }
    return start;
}
#endif

/* `more`: further members of the object, each with a comma before it. */
static void write_record(CPUArchState *env, const char *event, vaddr pc, int host_sig, int code, uint64_t address,
                         bool is_misaligned, bool handled, const char *more)
{
    CPUState *cpu = env_cpu(env);

#ifdef TARGET_SPARC
    /* Callers' registers are in windows until they are spilled, as the kernel does before a signal. */
    flush_windows(env);
#endif
    vaddr stack = get_sp_from_cpustate(env);
#ifdef TARGET_HPPA
    stack = stack_below(stack);
#endif
    g_autoptr(GString) line = g_string_sized_new(4 * STACK_LOGGED);
    g_string_printf(line, "{\"event\":\"%s\",\"pid\":%d,\"tid\":%d,\"signal\":%d,\"code\":%d,"
                    "\"address\":%" PRIu64 ",\"access\":\"%s\",\"access_class\":\"%s\",\"access_bytes\":%u,\"access_hint\":%u"
                    ",\"handled\":%s"
                    ",\"pc\":%" PRIu64 ",\"instruction\":\"",
                    event, getpid(), gettid(), host_sig, code, address,
                    !is_misaligned ? "" : last.is_store ? "store" : "load",
                    is_misaligned ? class_names[last.class] : "", is_misaligned ? last.size : 0,
                    is_misaligned ? last.hint : 0,
                    handled ? "true" : "false", (uint64_t)pc);
    append_memory(line, cpu, pc, INSTRUCTION_LOGGED);
    g_string_append(line, "\",\"registers\":[");
    for (int i = 0; i < MIN(cpu->gdb_num_regs, REGISTERS_LOGGED); i++) {
        g_autoptr(GByteArray) bytes = g_byte_array_new();
        int length = gdb_read_register(cpu, bytes, i);

        g_string_append(line, i ? ",\"" : "\"");
        append_hex(line, bytes->data, length);
        g_string_append(line, "\"");
    }
    g_string_append_printf(line, "],\"stack_address\":%" PRIu64 ",\"stack\":\"", (uint64_t)stack);
    append_memory(line, cpu, stack, STACK_LOGGED);
    g_string_append(line, "\",\"maps\":[");
    append_maps(line);
    g_string_append_printf(line, "]%s}\n", more);
    write_line(line);
}

/* For each instruction of this process, the number of its reported accesses, and of the signals that it has raised. */
enum { ACCESSES, FAULTS, COUNTED };
static const char *const count_names[COUNTED] = { "count", "repeat" };
static GHashTable *counts[COUNTED];
static GMutex counts_lock;

static void write_count(int of, vaddr pc, uintptr_t count)
{
    g_autoptr(GString) line = g_string_new(NULL);

    g_string_printf(line, "{\"event\":\"%s\",\"pid\":%d,\"pc\":%" PRIu64 ",\"count\":%" PRIuPTR "}\n",
                    count_names[of], getpid(), (uint64_t)pc, count);
    write_line(line);
}

/* Whether the log already contains this count, or as many records. */
static bool is_written(int of, uintptr_t count)
{
    return is_power_of_2(count) || (of == FAULTS && count <= FAULTS_IN_FULL);
}

static void write_last_counts(void)
{
    g_mutex_lock(&counts_lock);
    for (int of = 0; of < COUNTED; of++) {
        GHashTableIter iter;
        gpointer pc, count;

        if (!counts[of]) {
            continue;
        }
        g_hash_table_iter_init(&iter, counts[of]);
        while (g_hash_table_iter_next(&iter, &pc, &count)) {
            if (!is_written(of, (uintptr_t)count)) {
                write_count(of, (uintptr_t)pc, (uintptr_t)count);
            }
        }
    }
    g_mutex_unlock(&counts_lock);
}

/* A forked child counts from zero. The thread that held the lock does not exist in it. */
static void forget_counts(void)
{
    g_mutex_init(&counts_lock);
    for (int of = 0; of < COUNTED; of++) {
        if (counts[of]) {
            g_hash_table_remove_all(counts[of]);
        }
    }
}

static uintptr_t count_once(int of, vaddr pc)
{
    static bool forgets;
    gpointer key = (gpointer)(uintptr_t)pc;

    g_mutex_lock(&counts_lock);
    if (!forgets) {
        forgets = true;
        pthread_atfork(NULL, NULL, forget_counts);
    }
    if (!counts[of]) {
        counts[of] = g_hash_table_new(g_direct_hash, g_direct_equal);
    }
    uintptr_t count = (uintptr_t)g_hash_table_lookup(counts[of], key) + 1;
    g_hash_table_insert(counts[of], key, (gpointer)count);
    g_mutex_unlock(&counts_lock);
    return count;
}

static const char *fatal_faults;
/* The instruction and the host's signal of the first misaligned access that a handler of this process received. */
static struct {
    vaddr pc;
    int host_sig;
} seen;

void plumbline_set_fatal_faults(const char *path)
{
    fatal_faults = path;
}

/* `has_fatal_record`: a record of this process already shows where it was when the signal came that kills it. */
static bool logs_ends, has_fatal_record;

void plumbline_set_log_ends(void)
{
    logs_ends = true;
}

bool plumbline_logs_end_by(int sig)
{
    /* Signals by which test drivers and a program's own timers end what hangs. */
    return logs_ends && fault_log >= 0 &&
           (sig == TARGET_SIGTERM || sig == TARGET_SIGALRM || sig == TARGET_SIGVTALRM || sig == TARGET_SIGPROF ||
            sig == TARGET_SIGXCPU);
}

static bool no_crash_maps, has_crashed;

void plumbline_set_no_crash_maps(void)
{
    no_crash_maps = true;
}

bool plumbline_hides_maps(void)
{
    return no_crash_maps && has_crashed;
}

static bool is_fatal(vaddr pc)
{
    g_autofree char *text = NULL, *line = g_strdup_printf("\n%" VADDR_PRIx "\n", pc);

    /* The first process finds no file. */
    return fatal_faults && g_file_get_contents(fatal_faults, &text, NULL, NULL) && strstr(text, line);
}

/* A process that survives the signal may receive it again. */
static void keep_seen(int host_sig)
{
    if (!fatal_faults || !seen.host_sig || seen.host_sig != host_sig || is_fatal(seen.pc)) {
        return;
    }
    int file = open(fatal_faults, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

    if (file >= 0) {
        /* A whole line in one write: several processes may die together. */
        dprintf(file, "\n%" VADDR_PRIx "\n", seen.pc);
        close(file);
    }
}

void plumbline_log_fault(CPUArchState *env, int sig, int code, uint64_t address, bool handled)
{
    CPUState *cpu = env_cpu(env);

    if (fault_log >= 0) {
        vaddr pc = cpu->cc->get_pc(cpu);
#ifdef TARGET_S390X
        /* A specification exception: SIGILL, and the PSW points past the instruction (Linux arch/s390/kernel/traps.c). */
        bool is_misaligned = sig == TARGET_SIGILL && last.is_pending;

        if (is_misaligned) {
            address = last.address;
            pc = last.raised_at;
        }
#else
        bool is_misaligned = sig == TARGET_SIGBUS && last.is_pending && last.address == address;
#endif
        uintptr_t count = count_once(FAULTS, pc);

        /* A fault without a handler is the last of its process, and readers look for it. */
        if (count <= FAULTS_IN_FULL || !handled) {
            write_record(env, "fault", pc, target_to_host_signal(sig), code, address, is_misaligned, handled, "");
        } else if (is_power_of_2(count)) {
            write_count(FAULTS, pc, count);
        }
        if (is_misaligned && handled && is_fatal(pc)) {
            plumbline_kill(env, sig);
        }
        if (is_misaligned && handled && !seen.host_sig) {
            seen.pc = pc;
            seen.host_sig = target_to_host_signal(sig);
        }
    }
    has_crashed = has_crashed || handled;
    has_fatal_record = has_fatal_record || !handled;
    last.is_pending = false;
}

void plumbline_log_call(CPUArchState *env, int number, const char *name)
{
    enum { SYS_SECCOMP_CODE = 1 }; /* Linux, asm-generic/siginfo.h */
    CPUState *cpu = env_cpu(env);

    if (fault_log >= 0) {
        /* Past the instruction, like the kernel's si_call_addr. */
        vaddr pc = cpu->cc->get_pc(cpu);
        g_autofree char *more = g_strdup_printf(",\"call\":\"%s\",\"call_number\":%d", name, number);

        write_record(env, "fault", pc, SIGSYS, SYS_SECCOMP_CODE, pc, false, false, more);
        has_fatal_record = true;
    }
}

void plumbline_log_lacking(int number)
{
    static uint8_t is_logged[8192]; /* MIPS has numbers above 6000. A forked child is of the same program. */
    const char *name = plumbline_call_name(number);

    /* A number without a name is one that the kernel lacks, too, or is newer than what programs can rely on. */
    if (!logs_ends || fault_log < 0 || !name || number >= ARRAY_SIZE(is_logged)) {
        return;
    }
    /* The C library asks for it at the start of each thread, and does without. */
    if (g_str_equal(name, "rseq") || qatomic_xchg(&is_logged[number], true)) {
        return;
    }
    g_autoptr(GString) line = g_string_new(NULL);

    g_string_printf(line, "{\"event\":\"lacking\",\"pid\":%d,\"call\":\"%s\"}\n", getpid(), name);
    write_line(line);
}

bool plumbline_has_fault_log(void)
{
    return fault_log >= 0;
}

void plumbline_log_overtake(vaddr early, vaddr late, vaddr reader, uint64_t early_place, uint64_t late_place)
{
    g_autoptr(GString) line = g_string_new(NULL);

    g_string_printf(line, "{\"event\":\"overtake\",\"pid\":%d,\"tid\":%d,\"pc\":%" PRIu64 ",\"early\":%" PRIu64
                    ",\"late\":%" PRIu64 ",\"early_place\":%" PRIu64 ",\"late_place\":%" PRIu64 ",\"maps\":[",
                    getpid(), gettid(), (uint64_t)reader, (uint64_t)early, (uint64_t)late, early_place, late_place);
    append_maps(line);
    g_string_append(line, "]}\n");
    write_line(line);
}

void plumbline_log_early_load(vaddr load, vaddr store, uint64_t place)
{
    g_autoptr(GString) line = g_string_new(NULL);

    g_string_printf(line, "{\"event\":\"missed\",\"pid\":%d,\"tid\":%d,\"pc\":%" PRIu64 ",\"store\":%" PRIu64
                    ",\"place\":%" PRIu64 ",\"maps\":[", getpid(), gettid(), (uint64_t)load, (uint64_t)store, place);
    append_maps(line);
    g_string_append(line, "]}\n");
    write_line(line);
}

void plumbline_log_order(uint64_t stores, uint64_t overtakes, uint64_t pauses)
{
    g_autoptr(GString) line = g_string_new(NULL);

    if (fault_log >= 0) {
        g_string_printf(line, "{\"event\":\"order\",\"pid\":%d,\"stores\":%" PRIu64 ",\"overtakes\":%" PRIu64
                        ",\"pauses\":%" PRIu64 "}\n", getpid(), stores, overtakes, pauses);
        write_line(line);
    }
}

/* The host's number of the signal that this process is about to die of. */
static int fatal_signal;

void plumbline_dying(int host_sig)
{
    fatal_signal = host_sig;
    keep_seen(host_sig);
}

void plumbline_finish(CPUArchState *env, int status)
{
    g_autoptr(GString) line = g_string_new(NULL);

    if (fault_log < 0) {
        return;
    }
    if (logs_ends && !has_fatal_record && (fatal_signal || status & 0xff)) {
        CPUState *cpu = env_cpu(env);

        write_record(env, "last", cpu->cc->get_pc(cpu), fatal_signal, fatal_signal ? 0 : status & 0xff, 0, false, false, "");
    }
    write_last_counts();
    plumbline_finish_order();
    g_string_printf(line, "{\"event\":\"end\",\"pid\":%d,\"signal\":%d,\"status\":%d}\n",
                    getpid(), fatal_signal, fatal_signal ? 0 : status & 0xff);
    write_line(line);
}

/* Remembers an access of a class, and returns the policy's action. */
static int judge_class(int class, vaddr pc, vaddr address, unsigned size, bool is_store)
{
    last.class = class;
    last.address = address;
    last.size = last.step = size;
    last.hint = 0;
    last.is_store = is_store;
    last.is_pending = actions[class] == ACTION_SIGNAL;
    last.raised_at = pc;
    return actions[class];
}

static int judge_access(CPUState *cpu, vaddr pc, vaddr address, MemOp op, bool is_store)
{
    CPUArchState *env = cpu_env(cpu);
    unsigned step = memop_size(op);
    int class = classify(env, pc, step);
    uint32_t insn = insn_at(env, pc);
    /* Both accesses count as one, which is a store. */
    bool changes = is_update(env, pc, class);
    int action = judge_class(class, pc, address, unit_of(insn, class, step), is_store || changes);

    last.step = step;
    last.hint = hint_of(insn, class, op);
    return action;
}

/* Whether this is the first access of an instruction that makes several. */
static bool is_first_part(CPUState *cpu, vaddr pc)
{
    if (last.parts && last.pc == pc) {
        last.parts--;
        return false;
    }
    last.pc = pc;
    /* After a signal, the other parts do not follow. */
    last.parts = last.is_pending ? 0 : parts_of(cpu_env(cpu), pc, last.class) - 1;
    return true;
}

/*
 * Whether the access is legal after all, because a compiler would have split it into aligned units. No compiler splits
 * an access that demands more than its size: one with a hint of NEON, or a block access of SPARC.
 */
static bool is_split(vaddr address)
{
    return last.class < CLASS_EXCLUSIVE && !last.hint && address % MIN(last.size, assumed) == 0;
}

static void report_access(CPUState *cpu, vaddr pc)
{
    if (!reporting || fault_log < 0) {
        return;
    }
    uintptr_t count = count_once(ACCESSES, pc);

    if (count == 1) {
        write_record(cpu_env(cpu), "access", pc, 0, 0, last.address, true, false, "");
    } else if (is_power_of_2(count)) {
        write_count(ACCESSES, pc, count);
    }
}

bool plumbline_permits_atomic(CPUState *cpu, vaddr address, MemOp op, uintptr_t host_pc)
{
    vaddr pc = plumbline_pc_of(cpu, host_pc);

    if (demand == PLUMBLINE_NONE || judge_access(cpu, pc, address, op, true) != ACTION_SIGNAL) {
        return true;
    }
    last.parts = 0;
    report_access(cpu, pc);
    return false;
}

bool plumbline_permit(CPUState *cpu, vaddr *address, MemOp op, bool is_store, uintptr_t host_pc)
{
    if (demand == PLUMBLINE_NONE) {
        return true; /* an access of a helper function: translated ones are not checked then */
    }
    vaddr pc = plumbline_pc_of(cpu, host_pc);
    int action = judge_access(cpu, pc, *address, op, is_store);
    bool is_reported = last.stacked == pc;

    last.stacked = 0;
    if (is_split(*address)) {
        last.is_pending = false;
        return true;
    }
    if (is_first_part(cpu, pc) && !is_reported) {
        report_access(cpu, pc);
    }
    if (action == ACTION_IGNORE) {
        /* ARM DDI 0100I, A4.1.23 LDR and A4.1.108 SWP: the loaded word is rotated. */
        if ((last.class == CLASS_WORD || last.class == CLASS_SWAP) && !is_store) {
            plumbline_rotation = *address % 4 * 8;
        }
        *address &= ~(vaddr)(MAX(last.size, last.hint) - 1);
    }
    return action != ACTION_SIGNAL;
}

bool plumbline_permit_whole(CPUState *cpu, vaddr address, MemOp op, bool is_store, uintptr_t host_pc)
{
    vaddr pc = plumbline_pc_of(cpu, host_pc);
    int action = judge_access(cpu, pc, address, op, is_store);

    last.parts = 0;
    report_access(cpu, pc);
    return action != ACTION_SIGNAL;
}

bool plumbline_stops_at_first(void)
{
    return assumed >= 4 && actions[CLASS_MULTI] == ACTION_SIGNAL && actions[CLASS_VFP] == ACTION_SIGNAL;
}

int plumbline_misaligned_scalars(void)
{
    /* The kernel names them RISCV_HWPROBE_MISALIGNED_.... */
    enum { EMULATED = 1, FAST = 3, UNSUPPORTED = 4 };
    bool is_repaired = true;

    if (demand == PLUMBLINE_NONE) {
        return FAST;
    }
    for (int class = CLASS_HALF; class <= CLASS_DWORD; class++) {
        is_repaired = is_repaired && actions[class] == ACTION_FIXUP;
    }
    return is_repaired ? EMULATED : UNSUPPORTED;
}

CPUState *plumbline_creator(void)
{
    return thread_cpu;
}

bool plumbline_enforces_stack(void)
{
    return demand != PLUMBLINE_NONE;
}

bool plumbline_resumes_after_stack(void)
{
    return reporting || actions[CLASS_STACK] != ACTION_SIGNAL;
}

bool plumbline_permit_stack(CPUState *cpu, vaddr pointer, unsigned size, bool is_store, uintptr_t host_pc)
{
    vaddr pc = plumbline_pc_of(cpu, host_pc);
    int action = judge_class(CLASS_STACK, pc, pointer, size, is_store);

    last.parts = 0;
    last.stacked = pc;
    report_access(cpu, pc);
    return action != ACTION_SIGNAL;
}

#if defined(TARGET_ARM) && !defined(TARGET_AARCH64)
int plumbline_judge_helper(CPUState *cpu, vaddr pc, vaddr address, int size, bool is_store)
{
    static const int answers[ACTIONS] = {
        [ACTION_SIGNAL] = PLUMBLINE_RAISE, [ACTION_FIXUP] = PLUMBLINE_DO, [ACTION_IGNORE] = PLUMBLINE_TRUNCATE
    };
    bool is_old = !arm_feature(cpu_env(cpu), ARM_FEATURE_V6);
    int action;

    if (demand == PLUMBLINE_NONE) {
        return PLUMBLINE_DO;
    }
    /* LDR and STR, or LDM and STM, on a CPU without LDREX. */
    action = judge_class(!is_old ? CLASS_EXCLUSIVE : size == 8 ? CLASS_MULTI : CLASS_WORD, pc, address,
                         is_old ? 4 : size, is_store);
    last.parts = 0;
    report_access(cpu, pc);
    return answers[action];
}
#endif
