#pragma once

// Puts a symbol at the private version nodes of several releases of rdma-core. A provider's library
// binds to the private node of the release that it was built with. The node's number changes
// whenever rdma-core changes what providers may rely on: 34 is the node of releases 34 to 56, 57
// that of 57 and 58, 59 that of 59 to 63; then come 64 and 65. Here each node names the same
// function.
//
// When rdma-core has a new node, the node becomes the default here and is added to libibverbs.map,
// and today's default becomes an old node of TULLE_SINCE_65. The macros follow the definition, in
// the same file.

#define TULLE_DEFAULT_NODE(name) __asm__(".symver " #name ", " #name "@@@IBVERBS_PRIVATE_65");
#define TULLE_OLD_NODE(name, number)                                               \
  __asm__(".globl " #name "_at_" #number "\n.set " #name "_at_" #number ", " #name \
          "\n.symver " #name "_at_" #number ", " #name "@IBVERBS_PRIVATE_" #number);

#define TULLE_SINCE_65(name) TULLE_DEFAULT_NODE(name)
#define TULLE_SINCE_64(name) TULLE_SINCE_65(name) TULLE_OLD_NODE(name, 64)
#define TULLE_SINCE_59(name) TULLE_SINCE_64(name) TULLE_OLD_NODE(name, 59)
#define TULLE_SINCE_34(name) TULLE_SINCE_59(name) TULLE_OLD_NODE(name, 57) TULLE_OLD_NODE(name, 34)
