// SPDX-License-Identifier: MIT
// x86-64: a TLS descriptor is called with its address in rax and must keep everything else, also vector registers:
// xsave saves them all around the call of the loader.
// Source: Oliva and Araujo, "Thread-Local Storage Descriptors for IA32 and AMD64/EM64T".
#include "arch/elf.hpp"

asm(R"(
    .text
    .globl  aplib_tls_descriptor_resolver
    .hidden aplib_tls_descriptor_resolver
    .type   aplib_tls_descriptor_resolver, @function
aplib_tls_descriptor_resolver:
    .cfi_startproc
    pushq   %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq    %rsp, %rbp
    .cfi_def_cfa_register %rbp
    pushq   %rdi
    pushq   %rsi
    pushq   %rdx
    pushq   %rcx
    pushq   %r8
    pushq   %r9
    pushq   %r10
    pushq   %r11
    movq    8(%rax), %rdi
    # SSE, AVX, AVX-512 state (0xee; x87 is left out, because what is called does not use it): at most 2,688 bytes
    # and the header, on a 64-byte boundary
    andq    $-64, %rsp
    subq    $3072, %rsp
    xorl    %edx, %edx
    movq    %rdx, 512(%rsp)
    movq    %rdx, 520(%rsp)
    movq    %rdx, 528(%rsp)
    movq    %rdx, 536(%rsp)
    movq    %rdx, 544(%rsp)
    movq    %rdx, 552(%rsp)
    movq    %rdx, 560(%rsp)
    movq    %rdx, 568(%rsp)
    movl    $0xee, %eax
    xsave   (%rsp)
    call    aplib_tls_descriptor_offset@PLT
    movq    %rax, %rcx
    movl    $0xee, %eax
    xorl    %edx, %edx
    xrstor  (%rsp)
    movq    %rcx, %rax
    leaq    -64(%rbp), %rsp
    popq    %r11
    popq    %r10
    popq    %r9
    popq    %r8
    popq    %rcx
    popq    %rdx
    popq    %rsi
    popq    %rdi
    popq    %rbp
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size aplib_tls_descriptor_resolver, .-aplib_tls_descriptor_resolver
)");
