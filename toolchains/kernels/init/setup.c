/*
 * Sets up what programs expect: mounted file systems, a network, randomness, and enough open files.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/random.h>
#include <net/if.h>
#include <net/route.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init.h"

enum { OPEN_FILES = 20000 };

static void mount_or_complain(const char *type, const char *place)
{
    mkdir(place, 0755);
    if (mount(type, place, type, 0, NULL) != 0) {
        complain(place);
    }
}

static void set_address(struct ifreq *request, const char *address)
{
    struct sockaddr_in *at = (struct sockaddr_in *)(void *)&request->ifr_addr;

    memset(at, 0, sizeof *at);
    at->sin_family = AF_INET;
    inet_aton(address, &at->sin_addr);
}

/* Set the address and the mask, then enable the interface. Returns false if there is no such interface. */
static bool configure_interface(int socket_, const char *name, const char *address, const char *mask)
{
    struct ifreq request = {0};

    strncpy(request.ifr_name, name, sizeof request.ifr_name - 1);
    set_address(&request, address);
    bool done = ioctl(socket_, SIOCSIFADDR, &request) == 0;
    set_address(&request, mask);
    done = done && ioctl(socket_, SIOCSIFNETMASK, &request) == 0 && ioctl(socket_, SIOCGIFFLAGS, &request) == 0;
    request.ifr_flags |= IFF_UP | IFF_RUNNING;
    return done && ioctl(socket_, SIOCSIFFLAGS, &request) == 0;
}

/* QEMU's user-mode network: the guest is 10.0.2.15, the gateway 10.0.2.2. */
static void configure_network(void)
{
    int socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
    struct sockaddr_in *gateway = (struct sockaddr_in *)(void *)&route.rt_gateway;

    if (!configure_interface(socket_, "lo", "127.0.0.1", "255.0.0.0")) {
        complain("lo");
    }
    if (!configure_interface(socket_, "eth0", "10.0.2.15", "255.255.255.0")) {
        complain("eth0");
    }
    route.rt_dst.sa_family = route.rt_genmask.sa_family = AF_INET;
    gateway->sin_family = AF_INET;
    inet_aton("10.0.2.2", &gateway->sin_addr);
    if (ioctl(socket_, SIOCADDRT, &route) != 0) {
        complain("the default route");
    }
    close(socket_);
}

/* Without a source of randomness, the first program would wait for one. Nothing in this machine is secret. */
static void credit_randomness(void)
{
    struct {
        struct rand_pool_info head;
        char bytes[64];
    } seed = {.head = {.entropy_count = 512, .buf_size = 64}};
    int random = open("/dev/urandom", O_RDWR | O_CLOEXEC);

    if (random < 0 || ioctl(random, RNDADDENTROPY, &seed) != 0) {
        complain("/dev/urandom");
    }
    if (random >= 0) {
        close(random);
    }
}

void set_up(void)
{
    static const struct rlimit files = {OPEN_FILES, OPEN_FILES}, no_core = {0, 0};

    mount_or_complain("proc", "/proc");
    mount_or_complain("sysfs", "/sys");
    /* If the kernel has debugfs: it contains MIPS' unaligned_action. */
    mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
    mount_or_complain("devtmpfs", "/dev");
    mount_or_complain("tmpfs", "/tmp");
    mount_or_complain("tmpfs", "/run");
    setrlimit(RLIMIT_NOFILE, &files);
    setrlimit(RLIMIT_CORE, &no_core);
    credit_randomness();
    configure_network();
}
