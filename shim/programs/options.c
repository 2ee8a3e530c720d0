#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void options_fault(const char *program, const char *format, ...) {
	va_list arguments;
	va_start(arguments, format);
	fprintf(stderr, "%s: ", program);
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "; see %s --help\n", program);
	va_end(arguments);
	exit(EXIT_BAD_ARGUMENTS);
}

static bool read_number(const char *text, double *number) {
	char *end;
	*number = strtod(text, &end);
	return end != text && *end == '\0' && isfinite(*number) && *number >= 0;
}

static bool read_count(const char *text, uint64_t *count) {
	char *end;
	errno = 0;
	*count = strtoull(text, &end, 10);
	return errno == 0 && text[0] >= '0' && text[0] <= '9' && *end == '\0';
}

bool options_bytes(const char *text, uint64_t *bytes) {
	static const struct {
		const char *name;
		double size;
	} units[] = {{"", 1}, {"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
	char *end;
	double number = strtod(text, &end);
	if (end == text || !isfinite(number) || number < 0)
		return false;
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
		if (strcmp(end, units[i].name) == 0 && number * units[i].size < 0x1p63) {
			*bytes = (uint64_t)(number * units[i].size);
			return true;
		}
	}
	return false;
}

static bool read_list(const char *text, struct list *list) {
	list->count = 0;
	for (;;) {
		char *end;
		unsigned long value = strtoul(text, &end, 10);
		if (text[0] < '0' || text[0] > '9' || value > INT32_MAX || list->count == LIST_MAX)
			return false;
		list->values[list->count++] = (int)value;
		if (*end == '\0')
			return true;
		if (*end != ',')
			return false;
		text = end + 1;
	}
}

/* Reads the text of an option; returns what was wanted instead, or null if it is well. */
static const char *read_value(const struct option_row *row, const char *text) {
	switch (row->kind) {
	case OPTION_COUNT:
		return read_count(text, row->value) ? NULL : "a whole number";
	case OPTION_NUMBER:
		return read_number(text, row->value) ? NULL : "a number of at least 0";
	case OPTION_BYTES:
		return options_bytes(text, row->value) ? NULL : "an amount of memory such as 512MiB or 2GiB";
	case OPTION_LIST:
		return read_list(text, row->value) ? NULL : "up to 16 whole numbers such as 0,1";
	default:
		*(const char **)row->value = text;
		return *text ? NULL : "a text";
	}
}

static void print_help(const char *usage, const struct option_row *rows) {
	printf("%s\n", usage);
	for (; rows->name; rows++)
		printf("  --%s%s%s\n", rows->name, rows->kind <= OPTION_OFF ? "  " : " ", rows->help);
}

static const struct option_row *find_row(const struct option_row *rows, const char *name, size_t length) {
	for (; rows->name; rows++)
		if (strncmp(rows->name, name, length) == 0 && rows->name[length] == '\0')
			return rows;
	return NULL;
}

void options_read(const char *program, const char *usage, const struct option_row *rows, int argc, char **argv) {
	for (int i = 1; i < argc; i++) {
		const char *argument = argv[i];
		if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
			print_help(usage, rows);
			exit(EXIT_OK);
		}
		if (strncmp(argument, "--", 2) != 0)
			options_fault(program, "unexpected argument %s", argument);
		const char *equals = strchr(argument, '=');
		size_t length = equals ? (size_t)(equals - argument) - 2 : strlen(argument) - 2;
		const struct option_row *row = find_row(rows, argument + 2, length);
		if (!row)
			options_fault(program, "unknown option %s", argument);
		if (row->kind <= OPTION_OFF) {
			if (equals)
				options_fault(program, "--%s takes no value", row->name);
			*(bool *)row->value = row->kind == OPTION_ON;
			continue;
		}
		const char *text = equals ? equals + 1 : argv[++i];
		if (!text)
			options_fault(program, "--%s needs a value", row->name);
		const char *wanted = read_value(row, text);
		if (wanted)
			options_fault(program, "--%s %s: give %s", row->name, text, wanted);
	}
}
