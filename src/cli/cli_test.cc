// Runs the executable as a user does, in a private network namespace: words, exit statuses, and the
// coming and going of the host agent.

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/folder_test.h"
#include "live/message/socket.h"
#include "live/path/packets/udp_socket.h"
#include "live/test_network_test.h"

namespace tulle::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Outcome {
  int status = -1;
  std::string text;  // standard output and error
};

Outcome shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen(("{ " + command + " ; } 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.text.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

Outcome tulle(const std::string& arguments) { return shell("'" TULLE_PROGRAM "' " + arguments); }

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + 8s;
  while (Clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(50ms);
  }
  return false;
}

pid_t agent_pid() {
  const auto status = nlohmann::json::parse(tulle("status --json").text);
  return status["agent"].is_null() ? 0 : status["agent"]["pid"].get<pid_t>();
}

class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    live::enter_test_network();
    setenv("TULLE_IDLE_EXIT", "1", 1);
  }
  void TearDown() override {
    const pid_t pid = agent_pid();
    if (pid > 0) kill(pid, SIGTERM);
    EXPECT_TRUE(eventually([] { return agent_pid() == 0; }));
  }
};

TEST_F(CliTest, HelpIsForReading) {
  for (const char* command : {"", "run", "devices", "status", "capture", "agent", "sim", "sweep",
                              "tune", "compare", "bench", "calibrate"}) {
    const Outcome help = tulle(std::string(command) + " --help");
    EXPECT_EQ(help.status, 0) << command;
    EXPECT_TRUE(contains(help.text, "Options:")) << command;
    EXPECT_EQ(help.text.rfind(std::string("Usage: tulle ") + command, 0), 0u) << help.text;
  }
  EXPECT_TRUE(contains(tulle("--help").text, "Examples:"));
  EXPECT_EQ(tulle("--version").text.rfind("tulle ", 0), 0u);
}

TEST_F(CliTest, MistakesGetOneLineAndStatusTwo) {
  for (const char* wrong : {"", "fly", "--fast", "status --colour", "run", "run --fast true",
                            "capture", "capture --output x --direction up",
                            "agent --idle-exit soon", "run --faults drop=2 -- true"}) {
    const Outcome outcome = tulle(wrong);
    EXPECT_EQ(outcome.status, 2) << wrong;
    EXPECT_EQ(lines(outcome.text), 1u) << wrong << ": " << outcome.text;
    EXPECT_EQ(outcome.text.rfind("tulle: ", 0), 0u) << outcome.text;
  }
  EXPECT_TRUE(contains(tulle("fly").text, "\"fly\""));
  EXPECT_TRUE(contains(tulle("smi").text, "no command \"smi\"; did you mean sim?"));
  EXPECT_TRUE(contains(tulle("sweep incast --ouput x").text, "did you mean --output?"));
}

TEST_F(CliTest, RunTakesThePlaceOfTheProgram) {
  EXPECT_EQ(tulle("run -- sh -c 'exit 7'").status, 7);
  EXPECT_EQ(tulle("run sh -c 'exit 8'").status, 8);
  EXPECT_EQ(tulle("run -d x0 -i lo --faults drop=0.1 --agent @y -- sh -c "
                  "'echo $TULLE_DEVICE $TULLE_INTERFACE $TULLE_FAULTS $TULLE_AGENT'")
                .text,
            "x0 lo drop=0.1 @y\n");
  const Outcome paths = tulle("run -- sh -c 'echo $LD_LIBRARY_PATH'");
  EXPECT_EQ(paths.status, 0) << paths.text;
  EXPECT_EQ(tulle("run -- printf %s,%s a -- b").text, "a,--b,") << "dashes are the program's";
}

TEST_F(CliTest, RunKeepsWhatIsPreloaded) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer's runtime must be the first library of `tulle` itself";
#endif
  setenv("LD_PRELOAD", "libm.so.6", 1);
  setenv("ASAN_OPTIONS", "exitcode=7", 1);
  const Outcome preload = tulle("run -- sh -c 'echo $LD_PRELOAD $ASAN_OPTIONS'");
  unsetenv("LD_PRELOAD");
  unsetenv("ASAN_OPTIONS");
  EXPECT_TRUE(preload.text.starts_with("libm.so.6:/"))
      << preload.text << ": it may have to be first";
  EXPECT_TRUE(contains(preload.text, "libtulle-paths.so verify_asan_link_order=0:exitcode=7"))
      << preload.text;
}

// What has no meaning is refused, and nothing is done.
TEST_F(CliTest, WordsAndVariablesWithoutMeaningAreRefused) {
  for (const char* command : {"fabric down second", "fabric status second", "fabric list second"}) {
    const Outcome outcome = tulle(command);
    EXPECT_EQ(outcome.status, 2) << command;
    EXPECT_TRUE(contains(outcome.text, "not expected: second")) << outcome.text;
  }
  const std::vector<std::pair<std::string, std::string>> variables = {
      {"TULLE_ROCE", "v3"},   {"TULLE_RECOVERY", "foo"}, {"TULLE_OFFLOAD", "no"},
      {"TULLE_DIRECT", "no"}, {"TULLE_BUSY_POLL", "x"},  {"TULLE_SHARE_MEMORY", "yes"},
      {"TULLE_LIKE", "e811"}, {"TULLE_GID_ORDER", "v2"}};
  for (const auto& [name, value] : variables) {
    setenv(name.c_str(), value.c_str(), 1);
    const Outcome outcome = tulle("run -- true");
    unsetenv(name.c_str());
    EXPECT_EQ(outcome.status, 2) << name;
    const std::string said = fmt::format("tulle: {}={} is no", name, value);
    EXPECT_TRUE(outcome.text.starts_with(said)) << outcome.text;
  }
  const Outcome interface = tulle("run --interface loo -- true");
  EXPECT_EQ(interface.status, 2);
  EXPECT_TRUE(contains(interface.text, "there is no network interface \"loo\"; did you mean lo?"))
      << interface.text;
}

TEST_F(CliTest, UsageNamesWhatACommandTakes) {
  EXPECT_TRUE(contains(tulle("run --help").text, "Usage: tulle run [OPTIONS] [--] PROGRAM"));
  EXPECT_TRUE(
      contains(tulle("fabric up --help").text, "Usage: tulle fabric up [OPTIONS] [FILE]\n"));
  EXPECT_TRUE(contains(tulle("fabric --help").text, "Usage: tulle fabric [OPTIONS] COMMAND\n"));
}

TEST_F(CliTest, ProgramsOfAdministratorsAreFound) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/usr/bin:/bin", 1);
  const Outcome outcome = tulle("run -- ldconfig --version");
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(tulle("run -- no-such-program").status, 127);
}

// Any library that has symbols that ours lacks stands for the system's libibverbs of a later day.
TEST_F(CliTest, RunWarnsOfALibraryThatIsNewer) {
  Dl_info c_library;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&std::getenv), &c_library), 0);
  const std::string folder = testing::TempDir() + "newer." + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(c_library.dli_fname, folder + "/libibverbs.so.1");
  setenv("TULLE_SYSTEM_LIBRARIES", folder.c_str(), 1);
  const Outcome warned = tulle("run -- sh -c 'exit 7'");
  std::filesystem::remove_all(folder);
  const Outcome without = tulle("run -- sh -c 'exit 7'");
  unsetenv("TULLE_SYSTEM_LIBRARIES");
  EXPECT_EQ(warned.status, 7) << "the program runs all the same";
  EXPECT_EQ(lines(warned.text), 1u) << warned.text;
  EXPECT_EQ(warned.text.rfind("tulle: warning: the system's libc", 0), 0u) << warned.text;
  EXPECT_TRUE(contains(warned.text, "@GLIBC_")) << warned.text;
  EXPECT_EQ(without.text, "");
}

TEST_F(CliTest, RunSaysWhatCannotRun) {
  const Outcome absent = tulle("run -- /nonexistent/program");
  EXPECT_EQ(absent.status, 127);
  EXPECT_EQ(lines(absent.text), 1u) << absent.text;
  const Outcome folder = tulle("run -- /");
  EXPECT_EQ(folder.status, 126);
}

TEST_F(CliTest, DevicesStartsAnAgentWhichLeavesWhenIdle) {
  EXPECT_EQ(agent_pid(), 0);
  const Outcome devices = tulle("devices");
  EXPECT_EQ(devices.status, 0) << devices.text;
  EXPECT_TRUE(contains(devices.text, "tulle0")) << devices.text;
  EXPECT_GT(agent_pid(), 0);
  EXPECT_TRUE(eventually([] { return agent_pid() == 0; }));
}

TEST_F(CliTest, ManyStartersGetOneAgent) {
  const Outcome all =
      shell("for i in 1 2 3 4 5 6 7 8; do '" TULLE_PROGRAM "' devices --json & done; wait");
  EXPECT_EQ(all.status, 0);
  std::size_t found = 0;
  for (std::size_t at = 0; (at = all.text.find("\"name\": \"tulle0\"", at)) != std::string::npos;
       ++at) {
    ++found;
  }
  EXPECT_EQ(found, 8u) << all.text;
}

TEST_F(CliTest, ADetachedAgentHoldsNothingOfItsStarter) {
  // The pipe ends although the host agent, which the program at the pipe's other end started, lives
  // on.
  const Outcome outcome = shell("'" TULLE_PROGRAM "' devices | cat");
  EXPECT_EQ(outcome.status, 0);
  const pid_t pid = agent_pid();
  ASSERT_GT(pid, 0);
  EXPECT_NE(getsid(pid), getsid(0));
}

TEST_F(CliTest, StatusWithoutAnAgentIsNoError) {
  const Outcome status = tulle("status");
  EXPECT_EQ(status.status, 0);
  EXPECT_TRUE(contains(status.text, "No host agent")) << status.text;
}

TEST_F(CliTest, AForegroundAgentStaysAndStops) {
  const Outcome outcome =
      shell("'" TULLE_PROGRAM "' agent --foreground & pid=$!; sleep 1.5; '" TULLE_PROGRAM
            "' status; kill $pid; wait $pid; echo status $?");
  EXPECT_TRUE(contains(outcome.text, "ready")) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "No process has a device open")) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "status 0")) << outcome.text;
}

// A program that ignores a wrong variable starts its agent with it.
TEST_F(CliTest, AnAgentStartsForAProgramWithAWrongVariable) {
  setenv("TULLE_BUSY_POLL", "x", 1);
  const Outcome by_hand = tulle("agent");
  const Outcome on_demand = tulle("agent --on-demand");
  unsetenv("TULLE_BUSY_POLL");
  EXPECT_EQ(by_hand.status, 2) << by_hand.text;
  EXPECT_EQ(on_demand.status, 0) << on_demand.text;
}

TEST_F(CliTest, ASecondAgentIsRefused) {
  ASSERT_EQ(tulle("devices").status, 0);
  const Outcome second = tulle("agent");
  EXPECT_EQ(second.status, 1);
  EXPECT_TRUE(contains(second.text, "running already")) << second.text;
}

TEST_F(CliTest, AnAgentsTroubleReachesItsStarter) {
  setenv("TULLE_INTERFACE", "nosuch0", 1);
  const Outcome interface = tulle("devices");
  unsetenv("TULLE_INTERFACE");
  EXPECT_EQ(interface.status, 1);
  EXPECT_TRUE(contains(interface.text, "nosuch0")) << interface.text;
  EXPECT_EQ(lines(interface.text), 1u) << interface.text;

  const Folder folder;
  const std::string program = folder.path("tulle");
  std::filesystem::copy_file(std::filesystem::canonical("/bin/false"), program);
  setenv("TULLE_EXECUTABLE", program.c_str(), 1);
  EXPECT_TRUE(eventually([] { return agent_pid() == 0; }));
  const Outcome silent = tulle("devices");
  unsetenv("TULLE_EXECUTABLE");
  EXPECT_EQ(silent.status, 1);
  EXPECT_TRUE(contains(silent.text, "did not start")) << silent.text;
  EXPECT_EQ(lines(silent.text), 1u) << silent.text;
}

// su keeps the variable, which may name another user's program.
TEST_F(CliTest, AnotherUsersProgramIsNoAgent) {
  const Folder files;
  const std::filesystem::path folder = files.path();
  const std::filesystem::path program = folder / "tulle";
  std::ofstream(program) << "#!/bin/sh\ntouch " << (folder / "ran").string() << "\n";
  std::filesystem::permissions(program, std::filesystem::perms::all);
  setenv("TULLE_EXECUTABLE", program.c_str(), 1);
  EXPECT_TRUE(eventually([] { return agent_pid() == 0; }));
  const Outcome outcome = tulle("devices");
  unsetenv("TULLE_EXECUTABLE");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.text, "is not started: other users may write to")) << outcome.text;
  EXPECT_FALSE(std::filesystem::exists(folder / "ran"));
  // A shell that is asked to run "agent" looks for a script of that name.
  for (const char* shell : {"/bin/sh", "/bin/bash"}) {
    setenv("TULLE_EXECUTABLE", shell, 1);
    const Outcome refused = tulle("devices");
    unsetenv("TULLE_EXECUTABLE");
    EXPECT_EQ(refused.status, 1);
    EXPECT_TRUE(contains(refused.text, "is not called tulle")) << refused.text;
  }
}

// In a folder below /tmp, the simulator and the libraries would lie where anybody may write.
TEST_F(CliTest, AnotherUsersProgramIsNoSimulator) {
  const Folder files;
  const std::filesystem::path folder = files.path();
  using std::filesystem::perms;
  std::filesystem::create_directory(folder / "bin");
  std::filesystem::copy_file(TULLE_PROGRAM, folder / "bin/tulle");
  for (const char* planted : {"libexec/tulle", "lib/tulle"}) {
    std::filesystem::create_directories(folder / planted);
    std::filesystem::permissions(folder / planted, perms::all);
  }
  const std::filesystem::path simulator = folder / "libexec/tulle/tulle-simulator";
  std::ofstream(simulator) << "#!/bin/sh\ntouch " << (folder / "ran").string() << "\n";
  std::filesystem::permissions(simulator, perms::all);
  std::filesystem::create_symlink("/dev/null", folder / "lib/tulle/libibverbs.so.1");
  const std::string program = (folder / "bin/tulle").string();
  const Outcome sim = shell("'" + program + "' sim --list 2>&1");
  EXPECT_EQ(sim.status, 126);
  EXPECT_TRUE(contains(sim.text, "another user can change it")) << sim.text;
  EXPECT_FALSE(std::filesystem::exists(folder / "ran"));
  const Outcome run = shell("'" + program + "' run -- true 2>&1");
  EXPECT_EQ(run.status, 1);
  EXPECT_TRUE(contains(run.text, "cannot find Tulle's libibverbs")) << run.text;
}

TEST_F(CliTest, ABusyPortReachesTheStarter) {
  const auto holder = live::bind_udp(live::read_settings().port, live::PortUse::exclusive);
  ASSERT_TRUE(holder);
  const Outcome outcome = tulle("devices");
  EXPECT_TRUE(contains(outcome.text, "is in use by another program")) << outcome.text;
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(CliTest, AStaleSocketFileIsInNobodysWay) {
  const Folder folder;
  const std::string path = folder.path("agent");
  { const auto listener = live::listen_at(path); }  // the socket's file stays
  const Outcome devices = tulle("devices --agent " + path);
  EXPECT_EQ(devices.status, 0) << devices.text;
  const auto status = nlohmann::json::parse(tulle("status --json --agent " + path).text);
  kill(status["agent"]["pid"].get<pid_t>(), SIGTERM);
  struct stat unused {};
  EXPECT_TRUE(eventually([&] { return stat(path.c_str(), &unused) != 0; })) << "left behind";
}

TEST_F(CliTest, ACaptureOfNothingIsAValidFile) {
  const std::string path = "/tmp/tulle-test-" + std::to_string(getpid()) + ".pcapng";
  const Outcome capture = tulle("capture --duration 0.2 -o " + path);
  EXPECT_EQ(capture.status, 0) << capture.text;
  EXPECT_TRUE(contains(capture.text, "0 frames of 0 processes")) << capture.text;
  std::ifstream file(path, std::ios::binary);
  std::uint32_t magic = 0;
  file.read(reinterpret_cast<char*>(&magic), sizeof(magic));
  EXPECT_EQ(magic, 0x0A0D'0D0Au);
  remove(path.c_str());
}

TEST_F(CliTest, ACaptureEndsCleanlyOnASignal) {
  const std::string path = "/tmp/tulle-test-" + std::to_string(getpid()) + ".pcapng";
  const Outcome outcome =
      shell("'" TULLE_PROGRAM "' capture -o " + path + " & pid=$!; until [ -s " + path +
            " ]; do sleep 0.02; done; "
            "kill -INT $pid; wait $pid; echo status $?");
  EXPECT_TRUE(contains(outcome.text, "Captured")) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "status 130")) << outcome.text;
  remove(path.c_str());
}

}  // namespace
}  // namespace tulle::cli
