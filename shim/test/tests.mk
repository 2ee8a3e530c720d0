# The tests of the hooks.
#
#   test-manifest   no symbol of a driver is unknown to the manifest
#   test-abi        the library loads wherever glibc 2.17 or newer is
#   test-lookup     names resolve as without the library, but for the driver's own functions
#   test-hooks      each hook does what it is for, and its test notices when it is gone (HOOKS="SYMBOL..." for some)
#   test-memory     the books against the emulated driver

# With SAN, test-hooks and test-memory run sanitised; a sanitiser's runtime goes before the library.

HOOK_OBJ := $(OBJ)/test
RUNTIME_address   := libasan.so
RUNTIME_undefined := libubsan.so
RUNTIME_thread    := libtsan.so
RUNTIME  := $(if $(SAN),$(shell $(CC) -print-file-name=$(RUNTIME_$(SAN))):)
FAKES    := $(HOOK_OBJ)/fake/libcuda.so.1 $(HOOK_OBJ)/fake/libnvidia-ml.so.1
MUTANT   := $(HOOK_OBJ)/mutant/libweft.so
HOOK_TESTS := test-manifest test-abi test-lookup test-hooks test-memory
.PHONY: $(HOOK_TESTS)

$(HOOK_OBJ)/fake_cuda.o $(HOOK_OBJ)/fake_answers.o $(HOOK_OBJ)/hooks.o: SANFLAGS :=
$(FAKES): $(HOOK_OBJ)/fake_cuda.o $(HOOK_OBJ)/fake_answers.o
	@mkdir -p $(@D)
	$(CC) -shared -o $@ -Wl,-soname,$(@F) -Wl,-Bsymbolic $^

$(HOOK_OBJ)/mutant/lookup.o: src/lookup.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -DWEFT_MUTANT -c -o $@ $<
$(MUTANT): $(HOOK_OBJ)/mutant/lookup.o $(filter-out %/lookup.o,$(call objects,$(WEFT_SRC))) src/libweft.map
	$(CC) -shared -o $@ $(filter %.o,$^) -Wl,--version-script=src/libweft.map $(LDFLAGS) $(LDLIBS)

$(HOOK_OBJ)/hooks $(HOOK_OBJ)/lookups: $(HOOK_OBJ)/%: $(HOOK_OBJ)/%.o
	$(CC) -o $@ $^ $(LDFLAGS) $(LDLIBS)
$(HOOK_OBJ)/books: $(HOOK_OBJ)/books.o $(OBJ)/src/books.o
	$(CC) -o $@ $^ $(LDFLAGS) $(LDLIBS)
$(HOOK_OBJ)/memory: $(HOOK_OBJ)/memory.o $(EMU)/libcuda.so.1
	$(CC) -o $@ $^ $(LDFLAGS) $(LDLIBS)
$(HOOK_OBJ)/lib%.so: $(HOOK_OBJ)/%.o
	$(CC) -shared -o $@ $^ $(LDLIBS)

test-manifest: shim emu
	test/manifest-test.sh $(OUT)/libweft.so $(EMU_LIBS)

test-abi: shim
	test/abi-test.sh $(OUT)/libweft.so

test-hooks: shim $(MUTANT) $(FAKES) $(HOOK_OBJ)/hooks
	ASAN_OPTIONS=detect_leaks=0 test/hooks.py $(HOOK_OBJ)/hooks $(RUNTIME)$(OUT)/libweft.so $(RUNTIME)$(MUTANT) $(HOOK_OBJ)/fake $(HOOKS)

# The same program, bound to the versions that programs built before glibc 2.34 ask for.
$(HOOK_OBJ)/lookups-old.o: test/lookups.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -include test/old_versions.h -c -o $@ $<
$(HOOK_OBJ)/lookups-old: $(HOOK_OBJ)/lookups-old.o
	$(CC) -o $@ $^ $(LDFLAGS) $(LDLIBS)

test-lookup: shim $(FAKES) $(addprefix $(HOOK_OBJ)/,lookups lookups-old libwrapper.so libneighbour.so)
	test/lookup-test.sh $(OUT)/libweft.so $(HOOK_OBJ)

test-memory: shim emu programs $(HOOK_OBJ)/memory $(HOOK_OBJ)/books
	$(HOOK_OBJ)/books
	ASAN_OPTIONS=detect_leaks=0 test/emulated.py $(WEFT) $(RUNTIME)$(OUT)/libweft.so $(EMU) $(HOOK_OBJ)/memory $(if $(SAN),,$(OUT)/conformance)
