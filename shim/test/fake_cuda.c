/* A driver that does nothing, with every symbol of the manifest: what the hooks add can be seen apart from what a driver
 * does. Calls that give something back are in fake_answers.c and take precedence over these. */
#define NOTHING(name) __attribute__((weak, visibility("default"))) int name(void) { return 0; }
#define HOOK(family, name) NOTHING(name)
#define CALL(family, name, reason) NOTHING(name)
#define EXEMPT(family, name, reason) NOTHING(name)
#define FOREIGN(prefix, reason)
#include "manifest.def"
