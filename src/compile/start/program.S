/* SPDX-License-Identifier: MIT */
/* Linked into every program that apcc makes. A shared object becomes a program by it: the kernel starts the stub named in .interp when the file
 * is executed, and the loader finds the entries. apcc writes the stub's path into .interp and cuts the section to its length. */

  .section .interp, "a", @progbits
interpreter:
  .zero 4096                     /* PATH_MAX, the kernel's limit */

/* The program's entries: main, cell_main, host_main, MAIN__; null where it lacks one (aplib-entries.ld). They need not be visible. */
  .section .data.rel.ro.aplib, "aw", @progbits
  .balign 8
  .globl aplib_program_entries
  .type aplib_program_entries, @object
  .size aplib_program_entries, 32
aplib_program_entries:
  .quad main
  .quad cell_main
  .quad host_main
  .quad MAIN__

/* The same for who reads files that were stripped of symbols, or linked with a version script: note "APlib", type 1 (a program, version 1 of
 * this layout): distance from the word itself to aplib_program_entries, and from its word to .interp. */
  .section .note.aplib, "a", @note
  .balign 4
  .long 6                        /* bytes of the owner's name */
  .long 16                       /* bytes of what follows it */
  .long 1
  .asciz "APlib"
  .balign 4
  .quad aplib_program_entries - .
  .quad interpreter - .

  .section .note.GNU-stack, "", @progbits
