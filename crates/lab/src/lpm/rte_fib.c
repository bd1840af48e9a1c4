// DPDK's rte_fib under the routes and addresses of `thalweg lab lpm`, which compiles this where libdpdk is installed.
//
// rte_fib 4|6 4k|2m ROUTES: builds a table, prints "ready SECONDS BYTES REFUSED LOOKUP", then obeys lines of its input:
//   load FILE   takes these addresses and prints their number
//   pass        looks all of them up and prints "ELAPSED_S CPU_S HITS SUM"
// A route is an address as look-ups take it, then its length and its next hop in two bytes each. Answers are added up
// as the caller adds up its own.

#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cpuflags.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_malloc.h>
#include <rte_vect.h>

enum { BULK = 64, MEGABYTES = 2048 };

static struct rte_fib *v4;
static struct rte_fib6 *v6;

static void fail(const char *what, const char *why) {
	printf("cannot %s: %s\n", what, why);
	exit(1);
}

static double seconds(clockid_t clock) {
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static unsigned char *read_file(const char *path, size_t *length) {
	FILE *file = fopen(path, "rb");
	if (!file || fseek(file, 0, SEEK_END)) fail("read", path);
	*length = ftell(file);
	rewind(file);
	unsigned char *bytes = aligned_alloc(64, (*length + 64) / 64 * 64);
	if (!bytes || fread(bytes, 1, *length, file) != *length) fail("read", path);
	fclose(file);
	return bytes;
}

// One EAL thread, which may run where this program may: not bound to a core, as the caller's threads are not.
static void start_eal(int huge) {
	cpu_set_t allowed;
	sched_getaffinity(0, sizeof allowed, &allowed);
	int cpu = 0;
	while (!CPU_ISSET(cpu, &allowed)) cpu++;
	char core[32], memory[32];
	snprintf(core, sizeof core, "0@%d", cpu);
	snprintf(memory, sizeof memory, "%d", MEGABYTES);
	char *arguments[] = { "rte_fib", "--lcores", core, "-m", memory, "--no-pci", "--no-telemetry", "--log-level=error",
		huge ? "--in-memory" : "--no-huge", huge ? NULL : "--no-shconf", huge ? NULL : "--file-prefix=thalweg-lab", NULL };
	if (rte_eal_init(huge ? 9 : 11, arguments) < 0) fail("start EAL", rte_strerror(rte_errno));
	sched_setaffinity(0, sizeof allowed, &allowed);
	if (rte_cpu_get_flag_enabled(RTE_CPUFLAG_AVX512F) > 0) rte_vect_set_max_simd_bitwidth(RTE_VECT_SIMD_512);
}

static void create4(int routes) {
	struct rte_fib_conf of4 = { .type = RTE_FIB_DIR24_8, .max_routes = routes + 1024,
		.dir24_8 = { .nh_sz = RTE_FIB_DIR24_8_2B, .num_tbl8 = 32766 } };
	v4 = rte_fib_create("v4", SOCKET_ID_ANY, &of4);
	if (!v4) fail("create the table", rte_strerror(rte_errno));
}

// With two bytes for a next hop there are too few blocks for a full table.
static void create6(int routes) {
	struct rte_fib6_conf of6 = { .type = RTE_FIB6_TRIE, .max_routes = routes + 1024,
		.trie = { .nh_sz = RTE_FIB6_TRIE_4B, .num_tbl8 = routes * 3 + 65536 } };
	v6 = rte_fib6_create("v6", SOCKET_ID_ANY, &of6);
	if (!v6) fail("create the table", rte_strerror(rte_errno));
}

static void pass(unsigned char *addresses, size_t count) {
	uint64_t hops[BULK], hits = 0, sum = 0;
	double cpu = seconds(CLOCK_THREAD_CPUTIME_ID), start = seconds(CLOCK_MONOTONIC);
	for (size_t at = 0; at < count; at += BULK) {
		int n = count - at < BULK ? count - at : BULK;
		if (v4) rte_fib_lookup_bulk(v4, (uint32_t *)addresses + at, hops, n);
		else rte_fib6_lookup_bulk(v6, (uint8_t (*)[RTE_FIB6_IPV6_ADDR_SIZE])addresses + at, hops, n);
		for (int i = 0; i < n; i++) {
			sum += hops[i];
			hits += hops[i] != 0;
		}
	}
	double elapsed = seconds(CLOCK_MONOTONIC) - start;
	cpu = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
	printf("%.9f %.9f %" PRIu64 " %" PRIu64 "\n", elapsed, cpu, hits, sum);
}

int main(int argc, char **argv) {
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 4) fail("start", "rte_fib 4|6 4k|2m ROUTES");
	int is_v6 = !strcmp(argv[1], "6");
	size_t address_bytes = is_v6 ? 16 : 4, route_bytes = address_bytes + 4, length;
	unsigned char *routes = read_file(argv[3], &length);
	size_t count = length / route_bytes, refused = 0;
	start_eal(!strcmp(argv[2], "2m"));

	double start = seconds(CLOCK_MONOTONIC);
	if (is_v6) create6(count);
	else create4(count);
	for (unsigned char *route = routes; route < routes + count * route_bytes; route += route_bytes) {
		uint16_t length_and_hop[2];
		memcpy(length_and_hop, route + address_bytes, 4);
		uint32_t address;
		memcpy(&address, route, 4);
		int refusal = is_v6 ? rte_fib6_add(v6, route, length_and_hop[0], length_and_hop[1])
			: rte_fib_add(v4, address, length_and_hop[0], length_and_hop[1]);
		refused += refusal != 0;
	}
	double build = seconds(CLOCK_MONOTONIC) - start;
	int vector = is_v6 ? rte_fib6_select_lookup(v6, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512)
		: rte_fib_select_lookup(v4, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512);
	size_t bytes = 0;
	for (int socket = 0; socket < RTE_MAX_NUMA_NODES; socket++) {
		struct rte_malloc_socket_stats stats;
		if (!rte_malloc_get_socket_stats(socket, &stats)) bytes += stats.heap_allocsz_bytes;
	}
	printf("ready %.6f %zu %zu %s\n", build, bytes, refused, vector ? "scalar" : "avx512");

	unsigned char *addresses = NULL;
	char line[4096];
	for (length = 0; fgets(line, sizeof line, stdin);) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "load ", 5)) {
			free(addresses);
			addresses = read_file(line + 5, &length);
			printf("%zu\n", length / address_bytes);
		} else {
			pass(addresses, length / address_bytes);
		}
	}
	return 0;
}
