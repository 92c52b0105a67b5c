# A guest in one boot sector. It fills 1 to 17 MiB with words that encode their own address and says R on
# the serial port. Then it checks all of them again and again and adds one to each, so that memory changes
# while the guest moves. After each round in which all words were right it says v. If a word is wrong, it
# says X and stops.

        .equ    memory_begin, 0x00100000
        .equ    memory_end,   0x01100000
        .equ    serial, 0x3f8
        .equ    mixed_with, 0x9e3779b9

        .code16
        .globl  _start
_start:
        cli
        xorw    %ax, %ax
        movw    %ax, %ds
        inb     $0x92, %al              # enables address line 20
        orb     $2, %al
        andb    $0xfe, %al
        outb    %al, $0x92
        lgdt    descriptors_register
        movl    %cr0, %eax
        orb     $1, %al
        movl    %eax, %cr0
        ljmpl   $8, $flat

        .code32
flat:
        movw    $16, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        movl    $0x7000, %esp
        xorl    %ebx, %ebx              # the round, which has been added to each word
        movl    $memory_begin, %edi
fill:
        movl    %edi, %eax
        xorl    $mixed_with, %eax
        stosl
        cmpl    $memory_end, %edi
        jb      fill
        movb    $'R', %al
        call    say
round:
        movl    $memory_begin, %edi
look:
        movl    %edi, %eax
        xorl    $mixed_with, %eax
        addl    %ebx, %eax
        cmpl    %eax, (%edi)
        jne     wrong
        incl    (%edi)
        addl    $4, %edi
        cmpl    $memory_end, %edi
        jb      look
        incl    %ebx
        movb    $'v', %al
        call    say
        jmp     round
wrong:
        movb    $'X', %al
        call    say
stop:
        hlt
        jmp     stop

# Sends the character in al. The port has no wire to wait for.
say:
        movw    $serial, %dx
        outb    %al, %dx
        ret

        .balign 8
descriptors:
        .quad   0
        .quad   0x00cf9a000000ffff      # code, flat
        .quad   0x00cf92000000ffff      # data, flat
descriptors_register:
        .word   . - descriptors - 1
        .long   descriptors

        .org    510
        .word   0xaa55
