#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chaos.h"

static bool close_wanted;

/* The child keeps what it has of the device. It lives until the driver ends it. */
static void child_runs(enum command command) {
  side_channel_leave();
  signal(SIGUSR1, SIG_DFL);
  if (command == COMMAND_fork_and_exit) exit(0);
  if (command == COMMAND_fork_and_exec) {
    execl("/bin/sleep", "sleep", "0.2", (char*)NULL);
    _exit(1);
  }
  if (command == COMMAND_fork_and_close && device.context != NULL) ibv_close_device(device.context);
  for (;;) pause();
}

/* A program that exits in a signal handler which interrupted fork(3) waits for ever for the C
   library's own locks, whether it uses verbs or not. So the signal waits. */
static pid_t fork_undisturbed(void) {
  sigset_t number, before;
  sigemptyset(&number);
  sigaddset(&number, SIGUSR1);
  sigprocmask(SIG_BLOCK, &number, &before);
  const pid_t child = fork();
  sigprocmask(SIG_SETMASK, &before, NULL);
  return child;
}

/* The driver sees by the page that the process is being loaded. */
static void run_instead(const char* path, char* const argv[]) {
  page->pid = 0;
  execv(path, argv);
  page->pid = (uint64_t)getpid();
}

static void run_again(void) {
  char arguments[4096];
  FILE* file = fopen("/proc/self/cmdline", "re");
  if (file == NULL) return;
  const size_t bytes = fread(arguments, 1, sizeof arguments - 1, file);
  fclose(file);
  arguments[bytes] = '\0';
  char* argv[8] = {NULL};
  int count = 0;
  for (size_t i = 0; i < bytes && count < 7; i += strlen(arguments + i) + 1)
    argv[count++] = arguments + i;
  run_instead("/proc/self/exe", argv);
}

void obey(void) {
  memory_give_back(false);
  const enum command command = (enum command)page->command;
  if (command == COMMAND_nothing) return;
  page->command = COMMAND_nothing;
  switch (command) {
    case COMMAND_fork_and_live:
    case COMMAND_fork_and_exit:
    case COMMAND_fork_and_close:
    case COMMAND_fork_and_exec:
      if (fork_undisturbed() == 0) child_runs(command);
      break;
    case COMMAND_exec_itself:
      run_again();
      break;
    case COMMAND_exec_another:
      run_instead("/bin/sleep", (char*[]){"sleep", "0.1", NULL});
      break;
    case COMMAND_unmap:
    case COMMAND_protect_all:
    case COMMAND_protect_writes:
      memory_take_away(command, page->argument, page->microseconds);
      break;
    case COMMAND_close_device:
      close_wanted = true;
      break;
    case COMMAND_quit:
      memory_give_back(true);
      side_channel_close();
      device_close(EVERYTHING);
      exit(0);
    case COMMAND_nothing:
      break;
  }
}

bool asked_to_close(void) {
  const bool wanted = close_wanted;
  close_wanted = false;
  return wanted;
}
