// A hostile user's program.
//
//   hostile_user list                    prints the attacks: "NAME" or "NAME flood"
//   hostile_user attack OPTIONS NAME...  carries these out one after the other, each in a process
//                                        of its own. Prints one line for each (Context::print), and
//                                        waits for a line before the next.
//   hostile_user settings                prints the agent and the executable that Tulle takes from
//                                        the environment
//   hostile_user repeat SECONDS OPTIONS NAME...
//                                        draws from these for that time, and prints how many it did
//
// OPTIONS: --seed S  --secrets HEX,…  --agent PID  --victims PID,…  --listeners PORT,…

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "attack.h"
#include "live/settings.h"

namespace hostile {

namespace {

constexpr unsigned longest_seconds = 180;

void show_a_secret(Context& context, int) {
  context.did();
  context.scan_a_secret();
}
void break_a_promise(Context& context, int) {
  context.did();
  context.expect(false, "this promise is broken on purpose");
}
void do_nothing(Context&, int) {}
void die(Context&, int) { abort(); }

struct Options {
  std::uint64_t seed = 1;
  double seconds = 0;
  std::vector<std::string> secrets;
  pid_t agent = 0;
  std::vector<pid_t> victims;
  std::vector<std::uint16_t> listeners;
  std::vector<std::string> names;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::string from_hexadecimal(const std::string& text) {
  std::string bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(at, 2), nullptr, 16));
  }
  return bytes;
}

Options parse(int argc, char** argv, int at) {
  Options options;
  for (; at < argc; ++at) {
    const std::string word = argv[at];
    if (!word.starts_with("--") || at + 1 == argc) {
      options.names.push_back(word);
      continue;
    }
    const std::string value = argv[++at];
    if (word == "--seed") options.seed = std::stoull(value);
    if (word == "--agent") options.agent = std::stoi(value);
    for (const std::string& each : split(value)) {
      if (word == "--secrets") options.secrets.push_back(from_hexadecimal(each));
      if (word == "--victims") options.victims.push_back(std::stoi(each));
      if (word == "--listeners") {
        options.listeners.push_back(static_cast<std::uint16_t>(std::stoi(each)));
      }
    }
  }
  return options;
}

double seconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::vector<Attack> all_attacks() {
  std::vector<Attack> all;
  for (const auto table : {message_attacks, attached_attacks, descriptor_attacks, command_attacks,
                           quota_attacks, address_attacks, process_attacks}) {
    auto some = table();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

const Attack* find(const std::vector<Attack>& attacks, const std::string& name) {
  const auto found =
      std::ranges::find_if(attacks, [&](const Attack& attack) { return attack.name == name; });
  if (found != attacks.end()) return &*found;
  std::fprintf(stderr, "hostile_user: there is no attack %s\n", name.c_str());
  std::exit(2);
}

// Each attack has a seed of its own, which follows from its name, so that it does the same alone.
Context context_of(const Options& options, const Attack& attack, std::uint64_t round) {
  const std::uint64_t own = std::hash<std::string>()(attack.name);
  Context context(options.seed ^ own ^ round << 32, options.secrets);
  context.agent = options.agent;
  context.victims = options.victims;
  context.listeners = options.listeners;
  return context;
}

// Carries out the attack in a child. A child that is killed says so.
void carry_out(const Attack& attack, Context context, bool is_told) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(longest_seconds);
    const double began = seconds_now();
    context.looks_from_outside = is_told;
    attack.run(context, attack.argument);
    if (is_told) context.print(attack.name, seconds_now() - began);
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (is_told && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
    std::printf("done\t%s\t0\t0\t0\t0\t\tthe attacking program ended with wait status %d\n",
                attack.name.c_str(), status);
    std::fflush(stdout);
  }
}

int attack_in_turn(const Options& options) {
  auto attacks = all_attacks();
  const auto controls = control_attacks();
  attacks.insert(attacks.end(), controls.begin(), controls.end());
  char line[16];
  for (const std::string& name : options.names) {
    const Attack* attack = find(attacks, name);
    carry_out(*attack, context_of(options, *attack, 0), true);
    if (std::fgets(line, sizeof(line), stdin) == nullptr) return 1;
  }
  return 0;
}

int repeat(const Options& options) {
  const auto attacks = all_attacks();
  tulle::Random random(options.seed);
  std::uint64_t count = 0;
  const double end = seconds_now() + options.seconds;
  while (seconds_now() < end) {
    const Attack* attack = find(attacks, options.names[random.next() % options.names.size()]);
    carry_out(*attack, context_of(options, *attack, ++count), false);
  }
  std::printf("%llu\n", static_cast<unsigned long long>(count));
  return 0;
}

}  // namespace

std::vector<Attack> control_attacks() {
  return {{"control.foreign_bytes", show_a_secret},
          {"control.broken_promise", break_a_promise},
          {"control.nothing", do_nothing},
          {"control.death", die}};
}

}  // namespace hostile

int main(int argc, char** argv) {
  using namespace hostile;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "list") {
    for (const Attack& attack : all_attacks()) {
      std::printf("%s%s\n", attack.name.c_str(), attack.is_flood ? " flood" : "");
    }
    return 0;
  }
  if (what == "settings") {
    const auto settings = tulle::live::read_settings();
    std::printf("%s %s\n", settings.agent.c_str(), settings.executable.c_str());
    return 0;
  }
  if (what == "attack") return attack_in_turn(parse(argc, argv, 2));
  if (what == "repeat" && argc > 3) {
    Options options = parse(argc, argv, 3);
    options.seconds = std::atof(argv[2]);
    return repeat(options);
  }
  std::fprintf(stderr,
               "hostile_user: list | attack OPTIONS NAME... | repeat SECONDS OPTIONS NAME...\n");
  return 2;
}
