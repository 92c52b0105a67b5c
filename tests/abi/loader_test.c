/* Loads the drop-in library in the ways in which programs do.

     loader_test collectives            as a collectives library that is not linked to it:
                                        libibverbs.so first, then .so.1, then symbols by name and
                                        version
     loader_test providers              as programs that are linked to a provider's library and to
                                        libibverbs itself, which need all symbols that providers
                                        bind to
     loader_test foreign                asks providers' own tests for "is this device mine"

   FOLDER in the environment says where the library must come from. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdint.h>
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
  /* The function that a program of 2006 would call refuses. */
  void** (*old_list)(int*) =
      (void** (*)(int*))dlvsym(library, "ibv_get_device_list", "IBVERBS_1.0");
  if (old_list == NULL || old_list(NULL) != NULL) ++failures;
  return failures != 0;
}

/* Loads a provider with all that it needs. The libibverbs that it binds to must come from the
   folder. */
static int load_provider(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    printf("%s\n", dlerror());
    return 1;
  }
  void* verbs = dlsym(library, "ibv_get_device_list");
  if (verbs == NULL) {
    printf("%s brings no libibverbs with it\n", path);
    return 1;
  }
  return check_origin(verbs);
}

/* Loads every provider that is installed: as a plug-in of libibverbs, which looks for a vendor's
   device, and as a library for programs that use a vendor's extensions. */
static int providers(void) {
  static const char* const patterns[] = {"/usr/lib/*/libibverbs/lib*-rdmav*.so",
                                         "/usr/lib64/libibverbs/lib*-rdmav*.so"};
  static const char* const libraries[] = {"libmlx5.so.1", "libmlx4.so.1", "libefa.so.1",
                                          "libhns.so.1",  "libmana.so.1", "libionic.so.1"};
  int failures = 0;
  size_t found = 0;
  for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); ++i) {
    glob_t plugins;
    if (glob(patterns[i], 0, NULL, &plugins) != 0) continue;
    for (size_t j = 0; j < plugins.gl_pathc; ++j) failures += load_provider(plugins.gl_pathv[j]);
    found += plugins.gl_pathc;
    globfree(&plugins);
  }
  /* Which of these libraries exist depends on the release. A library that the linker does not
     find is skipped; one that it finds and cannot bind is a failure. */
  for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); ++i) {
    const char* said = dlopen(libraries[i], RTLD_NOW) == NULL ? dlerror() : NULL;
    if (said != NULL && strstr(said, "cannot open shared object file") != NULL) continue;
    failures += load_provider(libraries[i]);
    ++found;
  }
  printf("%zu providers are installed, %d of them do not load\n", found, failures);
  return found == 0 || failures != 0;
}

typedef struct ibv_device** (*ListFunction)(int*);
typedef void (*FreeListFunction)(struct ibv_device**);
typedef struct ibv_context* (*OpenFunction)(struct ibv_device*);
typedef int (*CloseFunction)(struct ibv_context*);

/* Asks providers' functions about a device or context that is not theirs. Each function is
   looked for where its release has it. libmlx4 has no function of this kind: its functions do
   not check whose device it is. */
static int ask_providers(struct ibv_device* device, struct ibv_context* context) {
  static const struct {
    const char* library;
    const char* function;
    int takes_context;
  } questions[] = {
      {"libmlx5.so.1", "mlx5dv_is_supported", 0}, {"libhns.so.1", "hnsdv_is_supported", 0},
      {"libmlx5.so.1", "mlx5dv_query_device", 1}, {"libefa.so.1", "efadv_query_device", 1},
      {"libhns.so.1", "hnsdv_query_device", 1},
  };
  int asked = 0;
  for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); ++i) {
    void* library = dlopen(questions[i].library, RTLD_NOW);
    void* function = library != NULL ? dlsym(library, questions[i].function) : NULL;
    if (function == NULL) continue;
    ++asked;
    unsigned char attributes[1024] = {0};
    const int is_taken = questions[i].takes_context
                             ? ((int (*)(struct ibv_context*, void*, uint32_t))function)(
                                   context, attributes, sizeof(attributes)) == 0
                             : ((_Bool(*)(struct ibv_device*))function)(device);
    if (is_taken) {
      printf("%s takes the device for its own\n", questions[i].function);
      return 1;
    }
  }
  printf("%d functions of providers say that the device is not theirs\n", asked);
  return asked == 0;
}

static int foreign_device(void) {
  void* verbs = dlopen("libibverbs.so.1", RTLD_NOW);
  if (verbs == NULL) {
    printf("%s\n", dlerror());
    return 1;
  }
  ListFunction list = (ListFunction)dlsym(verbs, "ibv_get_device_list");
  OpenFunction open_device = (OpenFunction)dlsym(verbs, "ibv_open_device");
  CloseFunction close_device = (CloseFunction)dlsym(verbs, "ibv_close_device");
  FreeListFunction free_list = (FreeListFunction)dlsym(verbs, "ibv_free_device_list");
  int count = 0;
  struct ibv_device** devices = list(&count);
  struct ibv_context* context = count == 1 ? open_device(devices[0]) : NULL;
  if (context == NULL) {
    printf("no device to ask about\n");
    return 1;
  }
  const int failed = ask_providers(devices[0], context);
  close_device(context);
  free_list(devices);
  return failed;
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "collectives") == 0) return collectives();
  if (argc == 2 && strcmp(argv[1], "providers") == 0) return providers();
  if (argc == 2 && strcmp(argv[1], "foreign") == 0) return foreign_device();
  return 2;
}
