// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/rail_choice.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "transport/fabric/local_address.hpp"
#include "transport/fabric/ofi_fabric.hpp"

namespace weft::transport {
namespace {

// Threads: one at a time.
class EventLines final : public EventSink {
 public:
  void report(Severity, std::string_view name, std::span<const EventField> fields) override {
    std::string line(name);
    for (const EventField& field : fields) line += " " + std::string(field.key) + "=" + field.value;
    lines.push_back(line);
  }
  void count(std::string_view, std::uint64_t) override {}
  std::vector<std::string> lines;
};

// A host as container hosts are: the bridge is listed before the real interface.
std::vector<LocalAddress> container_host() {
  return {{.interface = "lo", .address = "127.0.0.1", .loopback = true},
          {.interface = "docker0", .address = "172.17.0.1", .bridge = true},
          {.interface = "eth1", .address = "fe80::1", .ipv6 = true, .link_local = true},
          {.interface = "eth0", .address = "fd00::2", .ipv6 = true},
          {.interface = "eth0", .address = "10.1.2.3"}};
}

std::string chosen(const FabricOptions& options) {
  const auto local = choose_local_address(options, container_host());
  return local ? local->interface + "=" + local->address : local.error().message();
}

TEST(LocalAddress, WithoutAPinIsNeitherBridgeNorLoopbackNorLinkLocal) {
  EXPECT_EQ(chosen({}), "eth0=10.1.2.3");
}

TEST(LocalAddress, FollowsEachPin) {
  EXPECT_EQ(chosen({.interface = "docker0"}), "docker0=172.17.0.1");
  EXPECT_EQ(chosen({.address = "fd00::2"}), "eth0=fd00::2");
  EXPECT_EQ(chosen({.address = "fd00:0::2"}), "eth0=fd00::2");
  EXPECT_EQ(chosen({.subnet = "127.0.0.0/8"}), "lo=127.0.0.1");
  EXPECT_EQ(chosen({.subnet = "fd00::/64"}), "eth0=fd00::2");
  EXPECT_EQ(chosen({.interface = "eth0", .subnet = "10.0.0.0/8"}), "eth0=10.1.2.3");
}

TEST(LocalAddress, AMissingPinIsAConfigErrorThatNamesWhatExists) {
  for (const FabricOptions& options :
       {FabricOptions{.interface = "eth7"}, FabricOptions{.address = "10.9.9.9"},
        FabricOptions{.address = "nonsense"}, FabricOptions{.subnet = "10.2.0.0/16"},
        FabricOptions{.subnet = "10.0.0.0/33"}, FabricOptions{.subnet = "10.0.0.0/8x"},
        FabricOptions{.interface = "eth1"}}) {
    const auto local = choose_local_address(options, container_host());
    ASSERT_FALSE(local);
    EXPECT_EQ(local.error().code, ErrorCode::kConfig);
    EXPECT_NE(local.error().detail.find("eth0=10.1.2.3"), std::string::npos);
  }
}

// No device of this kind is here: the named provider must not be replaced by a working one.
TEST(OpenFabric, ANamedProviderThatIsMissingIsAConfigErrorThatNamesWhatExists) {
  NullEventSink events;
  for (const char* provider : {"efa", "verbs;ofi_rxm", "no-such"}) {
    const auto rail = open_fabric({.provider = provider, .interface = "lo"}, events);
    ASSERT_FALSE(rail) << provider;
    EXPECT_EQ(rail.error().code, ErrorCode::kConfig);
    EXPECT_NE(rail.error().detail.find("tcp;ofi_rxm"), std::string::npos) << rail.error().message();
  }
}

TEST(OpenFabric, AMissingInterfaceIsAConfigErrorForEveryProvider) {
  NullEventSink events;
  for (const char* provider : {"auto", "net", "tcp;ofi_rxm"}) {
    const auto rail = open_fabric({.provider = provider, .interface = "no-such0"}, events);
    ASSERT_FALSE(rail) << provider;
    EXPECT_EQ(rail.error().code, ErrorCode::kConfig);
    EXPECT_NE(rail.error().detail.find("no-such0"), std::string::npos);
  }
}

TEST(OpenFabric, AutoSaysWhatItChoseAndWhatItPassedOver) {
  EventLines events;
  const auto rail =
      open_fabric({.provider = "auto", .interface = "lo", .subnet = "127.0.0.0/8"}, events);
  ASSERT_TRUE(rail) << rail.error().message();
  ASSERT_EQ(events.lines.size(), 1U);
  EXPECT_NE(events.lines[0].find("provider=" + (*rail)->facts().provider), std::string::npos);
  EXPECT_NE(events.lines[0].find("127.0.0.1"), std::string::npos);
  EXPECT_NE(events.lines[0].find("passed_over=fabric provider 'efa'"), std::string::npos);
}

TEST(OpenFabric, BindsTheFixedPortOrSaysThatItIsTaken) {
  NullEventSink events;
  const FabricOptions any{.provider = "net", .interface = "lo", .address = "127.0.0.1"};
  auto first = open_fabric(any, events);
  ASSERT_TRUE(first);
  const std::string address = (*first)->facts().address;
  FabricOptions taken = any;
  taken.port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  const auto second = open_fabric(taken, events);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kConfig);
}

TEST(LockedMemory, RefusesWithNeedHaveAndTheKnob) {
  EXPECT_TRUE(check_locked_memory(1000, UINT64_MAX));
  EXPECT_TRUE(check_locked_memory(1000, 1100));
  const auto refused = check_locked_memory(1000, 1099);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceLimit);
  EXPECT_NE(refused.error().detail.find("1100"), std::string::npos);
  EXPECT_NE(refused.error().detail.find("1099"), std::string::npos);
  EXPECT_NE(refused.error().detail.find("RLIMIT_MEMLOCK"), std::string::npos);
}

}  // namespace
}  // namespace weft::transport
