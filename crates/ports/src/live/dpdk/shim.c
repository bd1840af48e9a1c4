/*
 * The C side of the driver `dpdk`: wraps DPDK's inline functions and structures in plain functions that take integers
 * and pointers. `shim.rs` says who may call them with what. Nothing here keeps a pointer that it was given, except for
 * memory pools, which devices keep until they are detached.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>

/* The end of DPDK's log, which explains failures. */
#define LOG_BYTES 4096
static char said[LOG_BYTES];
static size_t said_bytes;
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t hear(void *cookie, const char *text, size_t bytes)
{
	size_t kept = bytes > LOG_BYTES ? LOG_BYTES : bytes;

	(void)cookie;
	pthread_mutex_lock(&said_lock);
	/* Keeps the newest text. */
	if (said_bytes + kept > LOG_BYTES) {
		size_t gone = said_bytes + kept - LOG_BYTES;
		memmove(said, said + gone, said_bytes - gone);
		said_bytes -= gone;
	}
	memcpy(said + said_bytes, text + bytes - kept, kept);
	said_bytes += kept;
	pthread_mutex_unlock(&said_lock);
	return (ssize_t)bytes;
}

/* Moves the log since the last call into `text`, at most `room` bytes of it. Returns how many. */
size_t tw_dpdk_said(char *text, size_t room)
{
	size_t bytes;

	pthread_mutex_lock(&said_lock);
	bytes = said_bytes < room ? said_bytes : room;
	memcpy(text, said, bytes);
	said_bytes = 0;
	pthread_mutex_unlock(&said_lock);
	return bytes;
}

/* Starts DPDK; 0 or a positive errno. */
int tw_dpdk_start(int argc, char **argv)
{
	cookie_io_functions_t functions = { .write = hear };
	FILE *stream = fopencookie(NULL, "w", functions);
	int kept, result;

	if (stream != NULL) {
		setvbuf(stream, NULL, _IOLBF, BUFSIZ);
		rte_openlog_stream(stream);
	}
	/* For unknown arguments DPDK prints its usage on stdout, where other programs expect our answers. */
	fflush(stdout);
	kept = dup(STDOUT_FILENO);
	if (kept >= 0)
		dup2(STDERR_FILENO, STDOUT_FILENO);
	result = rte_eal_init(argc, argv);
	fflush(stdout);
	if (kept >= 0) {
		dup2(kept, STDOUT_FILENO);
		close(kept);
	}
	if (result < 0)
		return rte_errno != 0 ? rte_errno : EINVAL;
	return 0;
}

/* Registers the calling thread with DPDK, which then caches free buffers for it. 0, or the thread goes without. */
int tw_dpdk_enter(void)
{
	return rte_thread_register();
}

void tw_dpdk_leave(void)
{
	rte_thread_unregister();
}

/* Finds or creates the device. 0 with the number of its port, or a positive errno. */
int tw_dpdk_attach(const char *device, uint16_t *port)
{
	struct rte_dev_iterator iterator;
	int result = rte_dev_probe(device);

	/* A device on the PCI bus was found when DPDK started. */
	if (result != 0 && result != -EEXIST)
		return -result;
	RTE_ETH_FOREACH_MATCHING_DEV(*port, device, &iterator) {
		rte_eth_iterator_cleanup(&iterator);
		return 0;
	}
	return ENODEV;
}

/* Removes the device. Its port must not be used any more. */
void tw_dpdk_detach(uint16_t port)
{
	struct rte_eth_dev_info info;
	int known = rte_eth_dev_info_get(port, &info);

	rte_eth_promiscuous_disable(port);
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	if (known == 0 && info.device != NULL)
		rte_dev_remove(info.device);
}

struct tw_facts {
	uint8_t mac[6];
	uint16_t mtu;
	/* The index of the kernel interface that it uses, or 0. */
	uint32_t interface;
	/* The name of its driver, ended by a zero. */
	char driver[32];
};

int tw_dpdk_facts(uint16_t port, struct tw_facts *facts)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	int result = rte_eth_dev_info_get(port, &info);

	if (result == 0)
		result = rte_eth_macaddr_get(port, &mac);
	if (result == 0)
		result = rte_eth_dev_get_mtu(port, &facts->mtu);
	if (result != 0)
		return -result;
	memcpy(facts->mac, mac.addr_bytes, sizeof(facts->mac));
	facts->interface = info.if_index;
	snprintf(facts->driver, sizeof(facts->driver), "%s", info.driver_name);
	return 0;
}

/*
 * Gives the port one queue each way, for packets of `mtu` bytes if it can take them. Received frames lie in `pool`.
 * 0, or a positive errno.
 */
int tw_dpdk_configure(uint16_t port, uint16_t mtu, uint32_t room, struct rte_mempool *pool)
{
	struct rte_eth_conf wish = { .rxmode = { .mtu = mtu } };
	struct rte_eth_dev_info info;
	uint16_t receive = 1024, transmit = 1024;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return -result;
	if ((uint32_t)mtu + RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN > room)
		wish.rxmode.offloads |= info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	result = rte_eth_dev_configure(port, 1, 1, &wish);
	if (result != 0) {
		/* Again with DPDK's default MTU. */
		wish.rxmode.mtu = 0;
		result = rte_eth_dev_configure(port, 1, 1, &wish);
	}
	if (result == 0)
		result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &transmit);
	if (result == 0)
		result = rte_eth_rx_queue_setup(port, 0, receive, rte_eth_dev_socket_id(port), NULL, pool);
	if (result == 0)
		result = rte_eth_tx_queue_setup(port, 0, transmit, rte_eth_dev_socket_id(port), NULL);
	return -result;
}

/* Starts the port; with `everything` it receives frames to other addresses too. 0, or a positive errno. */
int tw_dpdk_start_port(uint16_t port, int everything)
{
	int result = rte_eth_dev_start(port);

	if (result != 0)
		return -result;
	/* The receiver filters multicast; a device that cannot receive all multicast receives everything. */
	if (everything || rte_eth_allmulticast_enable(port) != 0)
		rte_eth_promiscuous_enable(port);
	return 0;
}

/* Whether the port has a link. */
int tw_dpdk_link(uint16_t port)
{
	struct rte_eth_link link;

	memset(&link, 0, sizeof(link));
	return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

struct tw_counters {
	/* Frames without a free buffer, damaged frames, and frames accepted for sending and not sent. */
	uint64_t missed, damaged, unsent;
};

void tw_dpdk_counters(uint16_t port, struct tw_counters *counters)
{
	struct rte_eth_stats stats;

	memset(&stats, 0, sizeof(stats));
	rte_eth_stats_get(port, &stats);
	counters->missed = stats.imissed + stats.rx_nombuf;
	counters->damaged = stats.ierrors;
	counters->unsent = stats.oerrors;
}

/* `count` buffers for `room` bytes each; NULL if there is not enough memory. */
struct rte_mempool *tw_dpdk_pool(const char *name, unsigned int count, uint16_t room)
{
	/* Each thread caches some, if there are enough for all threads. */
	const unsigned int at_hand = count >= 1024 ? 64 : 0;

	return rte_pktmbuf_pool_create(name, count, at_hand, 0, RTE_PKTMBUF_HEADROOM + room, SOCKET_ID_ANY);
}

void tw_dpdk_pool_free(struct rte_mempool *pool)
{
	rte_mempool_free(pool);
}

/* Receives up to `most` frames into `frames`, which has room for them. Returns how many. */
uint16_t tw_dpdk_receive(uint16_t port, struct rte_mbuf **frames, uint16_t most)
{
	return rte_eth_rx_burst(port, 0, frames, most);
}

/*
 * Copies a frame of any number of pieces to `to`, and restores the VLAN tag that the device may have stripped. Returns
 * its length; 0 if it has more than `room` bytes, or is no frame.
 */
uint32_t tw_dpdk_copy(const struct rte_mbuf *frame, uint8_t *to, uint32_t room)
{
	const uint32_t addresses = 2 * RTE_ETHER_ADDR_LEN;
	uint32_t length = rte_pktmbuf_pkt_len(frame), skipped = 0, done = 0;
	const struct rte_mbuf *piece;

	if (frame->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED)
		skipped = RTE_VLAN_HLEN;
	if (length < addresses || length > UINT16_MAX || length + skipped > room)
		return 0;
	/* Copies the frame behind the place of its tag; then the addresses move back to the front. */
	for (piece = frame; piece != NULL; piece = piece->next) {
		uint32_t bytes = rte_pktmbuf_data_len(piece);

		if (bytes > length - done)
			return 0;
		rte_memcpy(to + skipped + done, rte_pktmbuf_mtod(piece, const void *), bytes);
		done += bytes;
	}
	if (done != length)
		return 0;
	if (skipped != 0) {
		const uint16_t tag = frame->vlan_tci;

		memmove(to, to + skipped, addresses);
		to[addresses] = 0x81;
		to[addresses + 1] = 0x00;
		to[addresses + 2] = (uint8_t)(tag >> 8);
		to[addresses + 3] = (uint8_t)tag;
	}
	return length + skipped;
}

/* A buffer from the pool with a copy of the frame; NULL if there is none, or it is too small. */
struct rte_mbuf *tw_dpdk_frame(struct rte_mempool *pool, const uint8_t *bytes, uint16_t length)
{
	struct rte_mbuf *frame = rte_pktmbuf_alloc(pool);
	char *to;

	if (frame == NULL)
		return NULL;
	to = rte_pktmbuf_append(frame, length);
	if (to == NULL) {
		rte_pktmbuf_free(frame);
		return NULL;
	}
	rte_memcpy(to, bytes, length);
	return frame;
}

/* Sends the first of these frames. Returns how many the device took; it owns them then. */
uint16_t tw_dpdk_transmit(uint16_t port, struct rte_mbuf **frames, uint16_t count)
{
	return rte_eth_tx_burst(port, 0, frames, count);
}

/* Returns frames to their pools. */
void tw_dpdk_free(struct rte_mbuf **frames, unsigned int count)
{
	rte_pktmbuf_free_bulk(frames, count);
}
