/*
 * The kernel that all programs here launch: spin(ns) keeps one thread busy until %globaltimer has advanced by ns, so the
 * same text runs for the same time on a real GPU (from compute capability 5.0 on, in steps of about 1 us) and on an
 * emulated one, which reads its cost from the comment.
 */
#ifndef SPIN_PTX_H
#define SPIN_PTX_H

#define SPIN_KERNEL "spin"

static const char spin_ptx[] =
	"// weft-emu: kernel spin cost=param0_ns\n"
	".version 6.4\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry spin(.param .u64 ns)\n"
	"{\n"
	"	.reg .pred %p<2>;\n"
	"	.reg .b64 %rd<5>;\n"
	"	ld.param.u64 %rd1, [ns];\n"
	"	mov.u64 %rd2, %globaltimer;\n"
	"again:\n"
	"	mov.u64 %rd3, %globaltimer;\n"
	"	sub.u64 %rd4, %rd3, %rd2;\n"
	"	setp.lt.u64 %p1, %rd4, %rd1;\n"
	"	@%p1 bra again;\n"
	"	ret;\n"
	"}\n";

#endif
