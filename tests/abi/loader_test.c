/* Loads the drop-in library the ways in which programs do.

     loader_test collectives            as a collectives library that is not linked to it:
                                        libibverbs.so first, then .so.1, its symbols by name and
                                        version
     loader_test providers LIB …        programs that are linked to a provider's library need all
                                        of its symbols

   FOLDER in the environment says where the library must come from. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_origin(const void* address) {
  const char* folder = getenv("FOLDER");
  Dl_info info;
  if (folder == NULL || dladdr(address, &info) == 0 ||
      strncmp(info.dli_fname, folder, strlen(folder)) != 0) {
    printf("libibverbs comes from somewhere else than %s\n", folder != NULL ? folder : "FOLDER");
    return 1;
  }
  return 0;
}

static int collectives(void) {
  static const char* const names[] = {
      "ibv_get_device_list", "ibv_free_device_list", "ibv_get_device_name", "ibv_open_device",
      "ibv_close_device",    "ibv_get_async_event",  "ibv_ack_async_event", "ibv_query_device",
      "ibv_query_port",      "ibv_query_gid",        "ibv_query_qp",        "ibv_alloc_pd",
      "ibv_dealloc_pd",      "ibv_reg_mr",           "ibv_dereg_mr",        "ibv_create_cq",
      "ibv_destroy_cq",      "ibv_create_qp",        "ibv_modify_qp",       "ibv_destroy_qp",
      "ibv_fork_init",       "ibv_event_type_str"};
  void* library = dlopen("libibverbs.so", RTLD_NOW);
  if (library == NULL) {
    printf("%s\n", dlerror());
    return 1;
  }
  if (dlopen("libibverbs.so.1", RTLD_NOW) != library) {
    printf("libibverbs.so and libibverbs.so.1 are not the same\n");
    return 1;
  }
  int failures = 0;
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    void* symbol = dlvsym(library, names[i], "IBVERBS_1.1");
    if (symbol == NULL || symbol != dlsym(library, names[i])) {
      printf("%s is not at IBVERBS_1.1 by default\n", names[i]);
      ++failures;
      continue;
    }
    failures += check_origin(symbol);
  }
  if (dlvsym(library, "ibv_reg_mr_iova2", "IBVERBS_1.8") == NULL ||
      dlvsym(library, "ibv_query_ece", "IBVERBS_1.10") == NULL ||
      dlvsym(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12") == NULL) {
    printf("a later symbol is missing: %s\n", dlerror());
    ++failures;
  }
  /* What a program of 2006 would call refuses. */
  void** (*old_list)(int*) =
      (void** (*)(int*))dlvsym(library, "ibv_get_device_list", "IBVERBS_1.0");
  if (old_list == NULL || old_list(NULL) != NULL) ++failures;
  return failures != 0;
}

static int providers(int count, char** names) {
  for (int i = 0; i < count; ++i) {
    void* library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
      printf("%s\n", dlerror());
      return 1;
    }
    void* verbs = dlsym(library, "verbs_register_driver_34");
    if (verbs == NULL || check_origin(verbs) != 0) return 1;
  }
  return 0;
}

/* A provider's own test for "is it mine": reads what lies behind the ibv_device. */
static int foreign_device(void) {
  void* provider = dlopen("libmlx5.so.1", RTLD_NOW);
  void* verbs = dlopen("libibverbs.so.1", RTLD_NOW);
  if (provider == NULL || verbs == NULL) {
    printf("%s\n", dlerror());
    return 1;
  }
  void** (*list)(int*) = (void** (*)(int*))dlsym(verbs, "ibv_get_device_list");
  _Bool (*is_mlx5)(void*) = (_Bool(*)(void*))dlsym(provider, "mlx5dv_is_supported");
  int count = 0;
  void** devices = list(&count);
  if (devices == NULL || count != 1 || is_mlx5 == NULL || is_mlx5(devices[0])) {
    printf("the device is taken for one of mlx5\n");
    return 1;
  }
  void (*free_list)(void**) = (void (*)(void**))dlsym(verbs, "ibv_free_device_list");
  free_list(devices);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "collectives") == 0) return collectives();
  if (argc > 2 && strcmp(argv[1], "providers") == 0) return providers(argc - 2, argv + 2);
  if (argc == 2 && strcmp(argv[1], "foreign") == 0) return foreign_device();
  return 2;
}
