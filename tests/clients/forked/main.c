/* A server that forks its workers, as many do: the parent uses librdmacm first, then each child
   connects by itself. Prints a line for each connection: who made it, its queue pair number, and
   what became of its message.

     forked PORT CHILDREN     the clients; `forked PORT` is the peer that takes their messages */

#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { message_bytes = 64, queue = 4 };

static void fail(const char* what) {
  perror(what);
  exit(1);
}

static struct rdma_cm_id* endpoint(const char* port, int is_passive) {
  struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP,
                                .ai_flags = is_passive ? RAI_PASSIVE : 0},
                       *found;
  if (rdma_getaddrinfo("127.0.0.1", port, &hints, &found) != 0) fail("rdma_getaddrinfo");
  struct ibv_qp_init_attr attributes = {
      .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = {queue, queue, 1, 1, 0}};
  struct rdma_cm_id* id;
  if (rdma_create_ep(&id, found, NULL, &attributes) != 0) fail("rdma_create_ep");
  rdma_freeaddrinfo(found);
  return id;
}

static void take_messages(const char* port) {
  static char into[message_bytes];
  struct rdma_cm_id* listener = endpoint(port, 1);
  if (rdma_listen(listener, queue) != 0) fail("rdma_listen");
  puts("listening");
  fflush(stdout);
  for (;;) {
    struct rdma_cm_id* id;
    if (rdma_get_request(listener, &id) != 0) fail("rdma_get_request");
    struct ibv_mr* region = rdma_reg_msgs(id, into, sizeof into);
    if (region == NULL || rdma_post_recv(id, NULL, into, sizeof into, region) != 0)
      fail("rdma_post_recv");
    struct ibv_wc done;
    if (rdma_accept(id, NULL) != 0 || rdma_get_recv_comp(id, &done) != 1) fail("a message");
    rdma_disconnect(id);
    rdma_dereg_mr(region);
    rdma_destroy_ep(id);
  }
}

static void send_message(const char* who, const char* port) {
  static char message[message_bytes];
  struct rdma_cm_id* id = endpoint(port, 0);
  struct ibv_mr* region = rdma_reg_msgs(id, message, sizeof message);
  if (rdma_connect(id, NULL) != 0) fail("rdma_connect");
  struct ibv_wc done;
  if (rdma_post_send(id, NULL, message, sizeof message, region, 0) != 0) fail("rdma_post_send");
  if (rdma_get_send_comp(id, &done) != 1) fail("rdma_get_send_comp");
  printf("%s %06x %s\n", who, id->qp->qp_num, ibv_wc_status_str(done.status));
  fflush(stdout);
  rdma_disconnect(id);
  rdma_dereg_mr(region);
  rdma_destroy_ep(id);
}

int main(int count, char** arguments) {
  if (count < 2) return 2;
  if (count == 2) take_messages(arguments[1]);
  send_message("parent", arguments[1]);
  for (int child = 0; child < atoi(arguments[2]); ++child) {
    const pid_t made = fork();
    if (made < 0) fail("fork");
    if (made > 0) continue;
    send_message("child", arguments[1]);
    _exit(0);
  }
  int status, failed = 0;
  while (wait(&status) > 0) failed += status != 0;
  send_message("parent", arguments[1]);
  return failed;
}
