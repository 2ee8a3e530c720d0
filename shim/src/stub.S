/* dlsym and dlvsym, under the versions of both generations of glibc. A name that is not in the manifest is jumped on to the
 * next definition with the caller's own registers and return address, so that RTLD_NEXT still means the caller's next object
 * and dlerror tells of the caller's own request.
 *
 * weft_lookup(handle, name, caller) and weft_lookup_version(handle, name, version, caller) return two pointers: the answer,
 * or where to jump.
 */
#if !defined(__x86_64__)
#error "libweft.so interposes dlsym on x86-64 only: add this stub for the architecture"
#endif

	.macro stub name, old, decide, caller
	.globl	\name\()_current, \name\()_old
	.type	\name\()_current, @function
	.type	\name\()_old, @function
	.symver	\name\()_current, \name@@GLIBC_2.34, remove
	.symver	\name\()_old, \name@\old, remove
\name\()_current:
\name\()_old:
	.cfi_startproc
	endbr64
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	movq	24(%rsp), \caller
	call	\decide
	movq	%rdx, %r11
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	testq	%r11, %r11
	jz	1f
	jmp	*%r11
1:	ret
	.cfi_endproc
	.size	\name\()_current, . - \name\()_current
	.size	\name\()_old, . - \name\()_old
	.endm

	.text
	.hidden	weft_lookup, weft_lookup_version
	stub	dlsym, GLIBC_2.2.5, weft_lookup, %rdx
	stub	dlvsym, GLIBC_2.2.5, weft_lookup_version, %rcx

	.section .note.GNU-stack, "", @progbits
