#include "live/security/seal.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <span>
#include <string>

#include "base/folder_test.h"
#include "rdma/wire/bth.h"

namespace tulle::live {
namespace {

using Bytes = std::vector<std::byte>;

std::int64_t seconds = 1'800'000'000;

class SealTest : public testing::Test {
 protected:
  void SetUp() override {
    write("keys", {'1'});
    write("other", {'2'});
  }

  // Writes a file of keys, each of which is one digit repeated. Its time of change is new each
  // time.
  void write(const std::string& name, const std::vector<char>& digits) {
    const std::string path = folder_.path(name);
    {
      std::ofstream file(path);
      for (const char digit : digits) file << std::string(64, digit) << '\n';
    }
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(++changes_));
  }
  std::unique_ptr<Seal> make(const std::string& name = "keys") {
    auto seal = Seal::create(folder_.path(name), [] { return seconds; });
    EXPECT_TRUE(seal) << seal.error().message;
    return std::move(*seal);
  }
  static Bytes packet(std::size_t bytes = 100) {
    Bytes out(bytes);
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7);
    return out;
  }
  static Bytes sealed(Seal& seal, const Bytes& packet) {
    Bytes room(packet.size() + seal_bytes);
    std::ranges::copy(packet, room.begin() + seal_header_bytes);
    EXPECT_TRUE(seal.seal(route, room));
    return room;
  }
  static bool opens(Seal& seal, const Bytes& datagram, const Bytes& packet) {
    const auto opened = seal.open(route, datagram);
    if (opened) {
      EXPECT_TRUE(std::ranges::equal(*opened, packet));
    }
    return opened.has_value();
  }

  static wire::IpUdp from_to(std::uint8_t from, std::uint8_t to) {
    wire::IpUdp ip;
    ip.source.bytes[15] = from;
    ip.destination.bytes[15] = to;
    return ip;
  }

  static inline const wire::IpUdp route = from_to(1, 2);
  Folder folder_;
  int changes_ = 0;
};

TEST_F(SealTest, WhatIsSealedIsOpenedWithTheSameKey) {
  const auto one = make();
  const auto two = make();
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{60}, std::size_t{4'200}}) {
    const Bytes plain = packet(bytes);
    const Bytes datagram = sealed(*one, plain);
    EXPECT_EQ(datagram.size(), bytes + seal_bytes);
    EXPECT_TRUE(opens(*two, datagram, plain));
  }
  EXPECT_FALSE(opens(*make("other"), sealed(*one, packet()), packet()));
}

TEST_F(SealTest, ThePacketIsNotToBeRead) {
  const auto seal = make();
  const Bytes plain(200, std::byte{0x5A});
  const Bytes first = sealed(*seal, plain);
  const Bytes second = sealed(*seal, plain);
  for (const Bytes& datagram : {first, second}) {
    // About one of 256 random bytes has this value.
    EXPECT_LT(std::ranges::count(datagram, std::byte{0x5A}), 20);
  }
  EXPECT_FALSE(std::equal(first.begin() + seal_header_bytes, first.end(),
                          second.begin() + seal_header_bytes))
      << "equal packets are sealed differently";
}

// The host's steering reads the queue pair number where a BTH has it.
TEST_F(SealTest, TheQueuePairNumberIsWhereSteeringLooks) {
  const auto seal = make();
  Bytes plain = packet();
  wire::Bth bth;
  bth.congestion_and_qp = 0xABCDEF;
  std::memcpy(plain.data(), &bth, sizeof bth);
  const Bytes datagram = sealed(*seal, plain);
  std::memcpy(&bth, datagram.data(), sizeof bth);
  EXPECT_EQ(bth.destination_qp(), 0xABCDEFu);
}

TEST_F(SealTest, AnyChangeIsNoticed) {
  const auto one = make();
  const auto two = make();
  ASSERT_TRUE(opens(*two, sealed(*one, packet()), packet())) << "the sender is known from now on";
  const Bytes datagram = sealed(*one, packet());
  for (std::size_t i = 0; i < datagram.size(); ++i) {
    Bytes changed = datagram;
    changed[i] ^= std::byte{1};
    EXPECT_FALSE(opens(*two, changed, packet())) << i;
    EXPECT_FALSE(opens(*make(), changed, packet())) << i;
  }
  for (std::size_t bytes = 0; bytes < datagram.size(); ++bytes) {
    EXPECT_FALSE(opens(*two, Bytes(datagram.begin(), datagram.begin() + bytes), packet()));
  }
  EXPECT_TRUE(opens(*two, datagram, packet())) << "forgeries leave no trace";
}

// Nobody can send a recorded datagram to another host, or from one.
TEST_F(SealTest, ADatagramIsBoundToItsAddresses) {
  const auto one = make();
  const auto two = make();
  const Bytes datagram = sealed(*one, packet());
  for (const wire::IpUdp& other : {from_to(2, 1), from_to(1, 3), from_to(3, 2), wire::IpUdp{}}) {
    EXPECT_FALSE(two->open(other, datagram));
  }
  EXPECT_TRUE(two->open(route, datagram));
}

TEST_F(SealTest, ADatagramIsOpenedOnce) {
  const auto one = make();
  const auto two = make();
  std::vector<Bytes> datagrams(100);
  for (Bytes& datagram : datagrams) datagram = sealed(*one, packet());
  // They may come in any order.
  for (const int i : {50, 0, 99, 49, 98, 1}) {
    EXPECT_TRUE(opens(*two, datagrams[i], packet())) << i;
    EXPECT_FALSE(opens(*two, datagrams[i], packet())) << i;
  }
}

// Not all ways to make a child run handlers. The same nonce for two texts betrays both.
TEST_F(SealTest, AChildDoesNotUseTheNoncesOfItsParent) {
  const auto seal = make();
  sealed(*seal, packet());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    const Bytes first = sealed(*seal, packet());
    const Bytes second = sealed(*seal, packet());
    const bool goes_on =
        std::ranges::equal(std::span(first).subspan(8, 12), std::span(second).subspan(8, 12));
    const ssize_t written = ::write(ends[1], first.data(), seal_header_bytes);
    _exit(goes_on && written == seal_header_bytes ? 0 : 1);
  }
  Bytes of_child(seal_header_bytes);
  ASSERT_EQ(read(ends[0], of_child.data(), of_child.size()), std::ssize(of_child));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const Bytes own = sealed(*seal, packet());
  constexpr std::size_t sender = 8, nonce_bytes = 20;  // the sender and its counter
  EXPECT_FALSE(std::ranges::equal(std::span(own).subspan(sender, nonce_bytes),
                                  std::span(of_child).subspan(sender, nonce_bytes)));
  EXPECT_TRUE(opens(*make(), own, packet()));
  for (const int end : ends) close(end);
}

// OpenSSL reads a configuration that the environment names, which may load any library. su keeps
// the variable.
TEST_F(SealTest, AStrangersConfigurationIsNotRead) {
  void* library = dlopen("libcrypto.so.3", RTLD_LAZY);
  Dl_info its{};
  ASSERT_NE(dladdr(dlsym(library, "HMAC"), &its), 0);
  const auto provider =
      std::filesystem::path(its.dli_fname).parent_path() / "ossl-modules" / "legacy.so";
  if (!std::filesystem::exists(provider)) GTEST_SKIP() << "there is no " << provider;
  const std::string file = folder_.path("openssl.cnf");
  std::ofstream(file) << "openssl_conf = all\n[all]\nproviders = list\n[list]\nlegacy = one\n"
                      << "[one]\nmodule = " << provider.string() << "\nactivate = 1\n";
  // In a new program, since this one may have used the library.
  const auto loads = [&] {
    const std::string command =
        "OPENSSL_CONF=" + file + " LD_DEBUG=files '" +
        std::filesystem::read_symlink("/proc/self/exe").string() +
        "' --gtest_filter=SealTest.WhatIsSealedIsOpenedWithTheSameKey 2>&1 | grep -c legacy.so";
    FILE* pipe = popen(command.c_str(), "r");
    char count[16] = "";
    EXPECT_NE(std::fgets(count, sizeof count, pipe), nullptr);
    pclose(pipe);
    return std::string(count) != "0\n";
  };
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  EXPECT_TRUE(loads()) << "one's own is";
  ASSERT_EQ(chmod(file.c_str(), 0666), 0);
  EXPECT_FALSE(loads());
}

TEST(ReplayWindow, NumbersAreAdmittedOnceAndNotTooLate) {
  ReplayWindow window;
  constexpr std::uint64_t size = ReplayWindow::datagrams;
  EXPECT_TRUE(window.admit(size));
  EXPECT_TRUE(window.admit(1));
  EXPECT_FALSE(window.admit(0)) << "too late to tell";
  EXPECT_TRUE(window.admit(size + 1));
  EXPECT_FALSE(window.admit(1));
  EXPECT_TRUE(window.admit(2));
  EXPECT_FALSE(window.admit(2));
  EXPECT_TRUE(window.admit(10 * size));
  EXPECT_FALSE(window.admit(size + 1));
  EXPECT_TRUE(window.admit(9 * size + 1));
  EXPECT_FALSE(window.admit(9 * size));
  for (std::uint64_t i = 9 * size + 2; i < 10 * size; ++i) ASSERT_TRUE(window.admit(i)) << i;
}

// A recorded datagram cannot be repeated to a process that starts later.
TEST_F(SealTest, AnUnknownSenderMustHaveSealedItNow) {
  const auto one = make();
  const Bytes datagram = sealed(*one, packet());
  const std::int64_t before = seconds;
  for (const std::int64_t away : {Seal::age_seconds_max + 1, -Seal::age_seconds_max - 1}) {
    seconds = before + away;
    EXPECT_FALSE(opens(*make(), datagram, packet())) << away;
  }
  seconds = before + Seal::age_seconds_max;
  const auto two = make();
  EXPECT_TRUE(opens(*two, datagram, packet()));
  const Bytes later = sealed(*one, packet());
  seconds = before + 100 * Seal::age_seconds_max;
  EXPECT_TRUE(opens(*two, later, packet())) << "a known sender's may have been on its way for long";
  seconds = before;
}

// An agent that starts again does not take a request that the last one took.
TEST_F(SealTest, WhatWasSealedBeforeMayBeRefused) {
  const std::int64_t before = seconds;
  const auto one = make();
  const Bytes datagram = sealed(*one, packet());
  seconds = before + 1;
  const auto two = make();
  two->refuse_earlier();
  EXPECT_FALSE(opens(*two, datagram, packet()));
  EXPECT_TRUE(opens(*two, sealed(*one, packet()), packet()));
  seconds = before;
}

// What an unknown sender has sealed too long ago stays refused when the sender becomes known.
TEST_F(SealTest, WhatIsTooOldStaysRefusedOnceItsSenderIsKnown) {
  const std::int64_t before = seconds;
  const auto one = make();
  const Bytes recorded = sealed(*one, packet());
  const Bytes late = sealed(*one, packet());
  seconds += Seal::age_seconds_max;
  const Bytes recent = sealed(*one, packet());
  ++seconds;
  const auto two = make();
  EXPECT_TRUE(opens(*two, sealed(*one, packet()), packet()));
  EXPECT_FALSE(opens(*two, recorded, packet()));
  EXPECT_TRUE(opens(*two, recent, packet())) << "it was overtaken";
  // An agent takes nothing of its predecessor's time.
  const auto agent = make();
  agent->refuse_earlier();
  EXPECT_TRUE(opens(*agent, sealed(*one, packet()), packet()));
  EXPECT_FALSE(opens(*agent, recent, packet()));
  // Both clocks are put back. What the sender seals from now on is taken.
  seconds = before - 3'600;
  EXPECT_TRUE(opens(*two, sealed(*one, packet()), packet()));
  EXPECT_TRUE(opens(*agent, sealed(*one, packet()), packet()));
  EXPECT_FALSE(opens(*two, recent, packet())) << "it was taken already";
  seconds = before;
  EXPECT_TRUE(opens(*make(), late, packet()));
}

TEST_F(SealTest, AClockThatIsPutBackShutsNobodyOut) {
  const std::int64_t before = seconds;
  seconds = before + 3'600;
  const auto two = make();
  two->refuse_earlier();
  seconds = before;
  EXPECT_TRUE(opens(*two, sealed(*make(), packet()), packet()));
}

// A library whose n-th call fails as it does without memory.
struct ScarceLibrary {
  static inline const Libcrypto* usual = nullptr;
  static inline int left = 0;  // calls until one fails; 0: none does
  static bool fails() { return left > 0 && --left == 0; }
  static Libcrypto make() {
    usual = *libcrypto();
    Libcrypto scarce = *usual;
    scarce.new_context = [] { return fails() ? nullptr : usual->new_context(); };
    scarce.hmac = [](auto... arguments) -> unsigned char* {
      return fails() ? nullptr : usual->hmac(arguments...);
    };
    scarce.begin_encryption = [](auto... arguments) {
      return fails() ? 0 : usual->begin_encryption(arguments...);
    };
    scarce.begin_decryption = [](auto... arguments) {
      return fails() ? 0 : usual->begin_decryption(arguments...);
    };
    return scarce;
  }
};

// No datagram is sealed or opened with a key that is not the file's, and no seal stays half made.
TEST_F(SealTest, WantOfMemoryMakesNoOtherKey) {
  const Libcrypto library = ScarceLibrary::make();
  const auto clock = [] { return seconds; };
  const auto peer = make();
  const auto new_peer = [&] {
    write("new", {'3'});
    return make("new");
  }();
  write("keys", {'1'});
  int failures = 0;
  const auto survives = [&](const auto& step) {
    try {
      step();
    } catch (const std::bad_alloc&) {
      ++failures;
    }
    ScarceLibrary::left = 0;
  };
  for (int n = 1; n < 12; ++n) {
    SCOPED_TRACE(testing::Message() << "call " << n << " fails");
    std::unique_ptr<Seal> seal;
    ScarceLibrary::left = n;
    survives([&] {
      auto made = Seal::create(folder_.path("keys"), clock, &library);
      if (made) seal = std::move(*made);
    });
    if (seal == nullptr) seal = std::move(*Seal::create(folder_.path("keys"), clock, &library));
    const auto expect_traffic = [&](Seal& with) {
      EXPECT_TRUE(opens(with, sealed(*seal, packet()), packet()));
      EXPECT_TRUE(opens(*seal, sealed(with, packet()), packet()));
    };
    const Bytes first = sealed(*peer, packet());
    ScarceLibrary::left = n;
    survives([&] { failures += !opens(*seal, first, packet()); });
    expect_traffic(*peer);
    write("keys", {'3', '1'});
    ScarceLibrary::left = n;
    survives([&] { seal->look_at_file(Time::seconds(1)); });
    EXPECT_EQ(seal->key_proof() == new_peer->key_proof(), seal->key_id() == new_peer->key_id());
    const auto out = sealed(*seal, packet());
    const bool is_new = seal->key_id() == new_peer->key_id();
    EXPECT_TRUE(opens(is_new ? *new_peer : *peer, out, packet()));
    seal->look_at_file(Time::seconds(2));
    EXPECT_EQ(seal->key_id(), new_peer->key_id());
    expect_traffic(*new_peer);
    write("keys", {'1'});
  }
  EXPECT_GT(failures, 10);
}

// A child that gets no memory for its own key seals nothing with its parent's.
TEST_F(SealTest, AChildWithoutMemorySealsNothing) {
  const Libcrypto library = ScarceLibrary::make();
  const auto peer = make();
  auto made = Seal::create(
      folder_.path("keys"), [] { return seconds; }, &library);
  ASSERT_TRUE(made);
  Seal& seal = **made;
  const Bytes own = sealed(seal, packet());
  const pid_t child = fork();
  if (child == 0) {
    Bytes room(100 + seal_bytes);
    for (int n = 1; n <= 3; ++n) {
      ScarceLibrary::left = 1;
      if (seal.seal(route, room)) _exit(1);
    }
    ScarceLibrary::left = 0;
    if (!seal.seal(route, room)) _exit(2);
    // Bytes 8 to 19 name the sender.
    _exit(std::equal(room.begin() + 8, room.begin() + 20, own.begin() + 8) ? 3 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// The 16 bits of an ID are in every datagram, and another key that has the same is soon found.
TEST_F(SealTest, OnlyAProcessThatHasTheKeyProvesIt) {
  const auto proof_of = [&](char digit) {
    write("keys", {digit});
    return make()->key_proof();
  };
  const KeyProof one = proof_of('1');
  EXPECT_TRUE(is_same_proof(one, proof_of('1')));
  KeyProof other = proof_of('2');
  EXPECT_FALSE(is_same_proof(one, other));
  EXPECT_FALSE(is_same_proof(one, {}));
  other = one;
  other[31] ^= 1;
  EXPECT_FALSE(is_same_proof(one, other));
}

TEST_F(SealTest, KeysAreReplacedWhileProgramsRun) {
  const auto one = make();
  const auto two = make();
  const auto expect_traffic = [&] {
    EXPECT_TRUE(opens(*two, sealed(*one, packet()), packet()));
    EXPECT_TRUE(opens(*one, sealed(*two, packet()), packet()));
  };
  expect_traffic();
  const std::uint16_t id = one->key_id();
  Time now;
  const auto change = [&](const std::vector<char>& digits) {
    write("keys", digits);
    now += Seal::look_interval;
    one->look_at_file(now);
    expect_traffic();  // one host is always the first
    two->look_at_file(now);
    expect_traffic();
  };
  change({'1', '3'});
  EXPECT_EQ(one->key_id(), id);
  change({'3', '1'});
  EXPECT_NE(one->key_id(), id);
  const Bytes old = sealed(*make(), packet());
  change({'3'});
  write("old", {'1'});
  EXPECT_FALSE(opens(*one, sealed(*make("old"), packet()), packet()));
  EXPECT_TRUE(opens(*one, old, packet())) << "it was sealed with the key that stayed";
  // A file that cannot be read changes nothing.
  write("keys", {});
  now += Seal::look_interval;
  one->look_at_file(now);
  expect_traffic();
}

// The ID in a datagram says which of the keys opens it.
TEST_F(SealTest, KeysWithTheSameIdAreRefused) {
  std::map<std::uint16_t, std::string> seen;
  const auto key_of = [](int number) { return fmt::format("{:064x}\n", number); };
  const auto write_keys = [&](const std::string& keys) {
    write("many", {});
    std::ofstream(folder_.path("many")) << keys;
  };
  std::string same;
  for (int i = 1; same.empty(); ++i) {
    write_keys(key_of(i));
    const auto [other, is_new] = seen.emplace(make("many")->key_id(), key_of(i));
    if (!is_new) same = other->second + key_of(i);
  }
  write_keys(same);
  const auto refused = Seal::create(folder_.path("many"));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("two of its keys have the same ID"), std::string::npos)
      << refused.error().message;
  // A key that takes the place of another with its ID does not keep the other's senders.
  write_keys(same.substr(0, 65));
  const auto sender = make("many");
  const auto receiver = make("many");
  EXPECT_TRUE(opens(*receiver, sealed(*sender, packet()), packet()));
  write_keys(same.substr(65));
  receiver->look_at_file(Seal::look_interval);
  EXPECT_FALSE(opens(*receiver, sealed(*sender, packet()), packet()));
  EXPECT_TRUE(opens(*receiver, sealed(*make("many"), packet()), packet()));
  write("many", {'1', '1'});
  EXPECT_EQ(make("many")->key_id(), make()->key_id()) << "a key that is there twice is one";
}

TEST_F(SealTest, AFileIsReadOnceItsModeIsRight) {
  const auto seal = make();
  const std::uint16_t id = seal->key_id();
  write("keys", {'3'});
  ASSERT_EQ(chmod(folder_.path("keys").c_str(), 0644), 0);
  seal->look_at_file(Seal::look_interval);
  EXPECT_EQ(seal->key_id(), id) << "others may read the new key";
  ASSERT_EQ(chmod(folder_.path("keys").c_str(), 0600), 0);
  seal->look_at_file(Seal::look_interval * 2);
  EXPECT_NE(seal->key_id(), id);
}

// An operator who undoes a replacement of keys must not open what was recorded before it.
TEST_F(SealTest, AKeyThatComesBackOpensNothingTwice) {
  write("own", {'1'});
  const auto sender = make("own");
  const auto receiver = make();
  const Bytes recorded = sealed(*sender, packet());
  const Bytes late = sealed(*sender, packet());
  ASSERT_TRUE(opens(*receiver, recorded, packet()));
  write("keys", {'2'});
  receiver->look_at_file(Seal::look_interval);
  EXPECT_FALSE(opens(*receiver, recorded, packet()));
  EXPECT_FALSE(opens(*receiver, late, packet())) << "the key is removed";
  write("keys", {'2', '1'});
  receiver->look_at_file(Seal::look_interval * 2);
  EXPECT_FALSE(opens(*receiver, recorded, packet()));
  EXPECT_TRUE(opens(*receiver, late, packet()));
  EXPECT_TRUE(opens(*receiver, sealed(*sender, packet()), packet())) << "nobody is shut out";
}

TEST_F(SealTest, SendersAreForgottenFromACertainNumberOn) {
  const auto receiver = make();
  const auto first = make();
  ASSERT_TRUE(opens(*receiver, sealed(*first, packet()), packet()));
  const Bytes datagram = sealed(*first, packet());
  ASSERT_TRUE(opens(*receiver, datagram, packet()));
  const std::int64_t before = seconds;
  // This one is forgotten. What it has sent is not taken again.
  const Bytes forgotten = sealed(*make(), packet());
  ASSERT_TRUE(opens(*receiver, forgotten, packet()));
  seconds = before + 1;
  for (std::size_t i = 0; i < Seal::senders_max; ++i) {
    ASSERT_TRUE(opens(*receiver, sealed(*make(), packet()), packet())) << i;
    ASSERT_TRUE(opens(*receiver, sealed(*first, packet()), packet())) << "it is never silent";
  }
  EXPECT_FALSE(opens(*receiver, datagram, packet()));
  EXPECT_FALSE(opens(*receiver, forgotten, packet()));
  seconds = before;
}

}  // namespace
}  // namespace tulle::live
