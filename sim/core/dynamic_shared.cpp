// dynamic_shared.cpp: the memory behind all extern __shared__ arrays of a program: one per thread of the simulator.
// As large as the largest GPU allows; a launch uses as much of it as it gives. Red zones stand before and behind it.
// Use: linked where a kernel has such an array (sim/compiler/assembly.cpp), and only there.
asm(R"(
.section .tbss.flash_dynamic_shared,"awT",@nobits
.balign 1024
.zero 1024
.globl flash_dynamic_shared
.type flash_dynamic_shared, @object
.size flash_dynamic_shared, 232448
flash_dynamic_shared:
.zero 233472
.text
)");
