/* Stands in for libweft.so in the tests: counts what is called, and says whatever the test sets. */
static int iterations, yields, managed = 1, waits;

int weft_iteration(void) { return iterations++, managed; }
int weft_yield(void) { return yields++, waits; }
int weft_managed(void) { return managed; }
int weft_waiting(void) { return waits; }
int counted_iterations(void) { return iterations; }
int counted_yields(void) { return yields; }
void count_anew(int is_managed, int somebody_waits) {
    iterations = yields = 0;
    managed = is_managed;
    waits = somebody_waits;
}
