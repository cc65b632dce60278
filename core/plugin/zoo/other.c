/* other.c: a library of its own, which no plugin may bring in. */
__attribute__((visibility("default"))) int zoo_other(void);
int zoo_other(void) { return 1; }
