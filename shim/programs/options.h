/*
 * Command lines by table: each program lists its options once, and gets the reading, the checks and the help from that.
 * Faults are reported on stderr, with the program's name and what is wanted, and end it with EXIT_BAD_ARGUMENTS.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_BAD_ARGUMENTS = 2,
};

enum option_kind {
	OPTION_ON,     /* takes nothing; bool becomes true */
	OPTION_OFF,    /* takes nothing; bool becomes false */
	OPTION_COUNT,  /* uint64_t, a whole number */
	OPTION_NUMBER, /* double, finite and at least 0 */
	OPTION_BYTES,  /* uint64_t, a number with B, KiB, MiB, GiB or TiB, or bytes */
	OPTION_TEXT,   /* const char *, which points into argv */
	OPTION_LIST,   /* struct list: whole numbers with commas between */
};

enum { LIST_MAX = 16 };

struct list {
	int count;
	int values[LIST_MAX];
};

struct option_row {
	const char *name; /* without the hyphens */
	enum option_kind kind;
	void *value; /* holds the default before, and what the command line says after */
	const char *help; /* begins with what follows the name, in capitals */
};

/*
 * Reads argv[1..] by a table that ends with a row without a name. --help prints usage and the table to stdout and exits.
 * program is the name for messages. Returns only if all is well.
 */
void options_read(const char *program, const char *usage, const struct option_row *rows, int argc, char **argv);

/* Reports a fault of the arguments in printf form, and exits. */
_Noreturn void options_fault(const char *program, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads an amount of memory such as "2GiB". False if text is none, or more than 2^63 bytes. */
bool options_bytes(const char *text, uint64_t *bytes);

#endif
