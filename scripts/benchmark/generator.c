/* A load generator for DNS over UDP and TCP: closed loop, or at a fixed rate, with sendmmsg and recvmmsg.
 *
 *     generator HOST PORT FILE SECONDS WINDOW SOCKETS RATE udp|tcp
 *
 * FILE has queries, each after its length in two octets, most significant first. A socket has WINDOW/SOCKETS
 * queries under way; for each reply the next goes out. RATE 0 is as fast as replies come, otherwise queries a
 * second. What has no reply after LOSS_MS is lost and its place is filled again. TCP pipelines on kept-open
 * connections. Prints one line of JSON; a reply must have the ID of a query under way and QR set.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64
#define MAX_SOCKETS 64
#define QUERY 1024
#define REPLY 4096
#define LOSS_MS 200
#define BUCKETS 100000 /* of latency, a microsecond each */

struct client {
    int fd;
    uint16_t next_id;
    int under_way;
    int64_t heard;
    uint8_t *stream; /* TCP: what was read and is not a whole message yet */
    size_t held;
};

static uint8_t *octets, **queries;
static uint16_t *lengths;
static size_t count, next_query;
static int64_t *sent_at; /* by socket and ID; 0 is not under way */
static uint64_t sent, received, lost, strange, latency[BUCKETS + 1], rcodes[16];

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void read_queries(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    octets = malloc(size);
    if (fread(octets, 1, size, file) != (size_t)size) die(path);
    fclose(file);
    queries = malloc(size * sizeof *queries / 14 + 8);
    lengths = malloc(size * sizeof *lengths / 14 + 8);
    for (long at = 0; at + 2 < size; count++) {
        lengths[count] = octets[at] << 8 | octets[at + 1];
        queries[count] = octets + at + 2;
        at += 2 + lengths[count];
        if (lengths[count] < 12 || lengths[count] > QUERY || at > size) {
            fprintf(stderr, "%s: a query of a wrong length\n", path);
            exit(1);
        }
    }
    if (!count) exit(1);
}

static void take(struct client *c, int index, const uint8_t *reply, size_t length) {
    uint16_t id = reply[0] << 8 | reply[1];
    int64_t *at = sent_at + ((size_t)index << 16) + id;
    if (length < 12 || !(reply[2] & 0x80) || !*at) {
        strange++;
        return;
    }
    int64_t took = (c->heard - *at) / 1000;
    latency[took < BUCKETS ? took : BUCKETS]++;
    *at = 0;
    c->under_way--;
    received++;
    rcodes[reply[3] & 15]++;
}

/* The next query into a buffer, with an ID of its own. */
static size_t fill(struct client *c, int index, uint8_t *buffer, int64_t t) {
    size_t length = lengths[next_query];
    memcpy(buffer, queries[next_query], length);
    next_query = next_query + 1 == count ? 0 : next_query + 1;
    uint16_t id = c->next_id++;
    buffer[0] = id >> 8;
    buffer[1] = id & 255;
    sent_at[((size_t)index << 16) + id] = t;
    return length;
}

static void push(struct client *c, int index, int number, int tcp) {
    static uint8_t buffers[BATCH][QUERY + 2], flat[BATCH * (QUERY + 2)];
    static struct mmsghdr messages[BATCH];
    static struct iovec parts[BATCH];
    int64_t t = now();
    while (number > 0) {
        int n = number < BATCH ? number : BATCH;
        if (tcp) {
            size_t size = 0;
            for (int i = 0; i < n; i++) {
                size_t length = fill(c, index, flat + size + 2, t);
                flat[size] = length >> 8;
                flat[size + 1] = length & 255;
                size += length + 2;
            }
            for (size_t done = 0; done < size;) {
                ssize_t w = send(c->fd, flat + done, size - done, MSG_NOSIGNAL);
                if (w < 0) die("send");
                done += w;
            }
        } else {
            for (int i = 0; i < n; i++) {
                parts[i].iov_base = buffers[i];
                parts[i].iov_len = fill(c, index, buffers[i], t);
                messages[i].msg_hdr.msg_iov = parts + i;
                messages[i].msg_hdr.msg_iovlen = 1;
            }
            for (int done = 0; done < n;) {
                int w = sendmmsg(c->fd, messages + done, n - done, 0);
                if (w < 0 && errno != ECONNREFUSED && errno != EINTR) die("sendmmsg");
                if (w > 0) done += w;
            }
        }
        c->under_way += n;
        sent += n;
        number -= n;
    }
}

static void pull(struct client *c, int index, int tcp) {
    static uint8_t buffers[BATCH][REPLY];
    static struct mmsghdr messages[BATCH];
    static struct iovec parts[BATCH];
    if (tcp) {
        ssize_t r = recv(c->fd, c->stream + c->held, 1 << 18, MSG_DONTWAIT);
        if (r == 0) {
            fprintf(stderr, "the server closed a connection\n");
            exit(1);
        }
        if (r < 0) return;
        c->heard = now();
        c->held += r;
        size_t at = 0;
        while (c->held - at >= 2) {
            size_t length = c->stream[at] << 8 | c->stream[at + 1];
            if (c->held - at < 2 + length) break;
            take(c, index, c->stream + at + 2, length);
            at += 2 + length;
        }
        memmove(c->stream, c->stream + at, c->held - at);
        c->held -= at;
        return;
    }
    for (int i = 0; i < BATCH; i++) {
        parts[i].iov_base = buffers[i];
        parts[i].iov_len = REPLY;
        messages[i].msg_hdr.msg_iov = parts + i;
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    int n = recvmmsg(c->fd, messages, BATCH, MSG_DONTWAIT, NULL);
    if (n <= 0) return;
    c->heard = now();
    for (int i = 0; i < n; i++) take(c, index, buffers[i], messages[i].msg_len);
}

static uint64_t percentile(double share) {
    uint64_t wanted = received * share, seen = 0;
    for (int i = 0; i <= BUCKETS; i++)
        if ((seen += latency[i]) > wanted) return i;
    return BUCKETS;
}

int main(int argc, char **argv) {
    if (argc != 9) {
        fprintf(stderr, "usage: %s HOST PORT FILE SECONDS WINDOW SOCKETS RATE udp|tcp\n", argv[0]);
        return 2;
    }
    double seconds = atof(argv[4]), rate = atof(argv[7]);
    int window = atoi(argv[5]), sockets = atoi(argv[6]), tcp = !strcmp(argv[8], "tcp");
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    if (inet_pton(AF_INET, argv[1], &to.sin_addr) != 1 || sockets < 1 || sockets > MAX_SOCKETS || window < sockets) {
        fprintf(stderr, "a wrong HOST, WINDOW or number of SOCKETS\n");
        return 2;
    }
    read_queries(argv[3]);
    static struct client clients[MAX_SOCKETS];
    struct pollfd polled[MAX_SOCKETS];
    sent_at = calloc((size_t)sockets << 16, sizeof *sent_at);
    int share = window / sockets, one = 1;
    for (int i = 0; i < sockets; i++) {
        struct client *c = clients + i;
        c->fd = socket(AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
        int size = 4 << 20;
        setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
        if (connect(c->fd, (struct sockaddr *)&to, sizeof to)) die("connect");
        if (tcp) setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        c->stream = malloc(1 << 19);
        polled[i] = (struct pollfd){c->fd, POLLIN, 0};
    }
    int64_t start = now(), end = start + (int64_t)(seconds * 1e9), t = start;
    if (rate == 0)
        for (int i = 0; i < sockets; i++) clients[i].heard = t, push(clients + i, i, share, tcp);
    for (uint64_t planned = 0; (t = now()) < end;) {
        if (rate > 0) {
            uint64_t due = (t - start) * rate / 1e9;
            int n = due - planned > BATCH ? BATCH : due - planned;
            if (n > 0) push(clients + planned % sockets, planned % sockets, n, tcp);
            planned = due;
            poll(polled, sockets, 0);
        } else {
            poll(polled, sockets, LOSS_MS / 4);
        }
        for (int i = 0; i < sockets; i++) {
            struct client *c = clients + i;
            if (polled[i].revents) pull(c, i, tcp);
            if (rate > 0) continue;
            if (c->under_way && now() - c->heard > LOSS_MS * 1000000LL) {
                lost += c->under_way;
                c->under_way = 0;
                c->heard = now();
                memset(sent_at + ((size_t)i << 16), 0, sizeof *sent_at << 16);
            }
            if (c->under_way < share) push(c, i, share - c->under_way, tcp);
        }
    }
    double took = (now() - start) / 1e9;
    /* What is still under way when time is up is neither lost nor answered, but for a fixed rate give it a moment. */
    if (rate > 0) {
        usleep(100000);
        for (int i = 0; i < sockets; i++)
            for (int k = 0; k < 64; k++) pull(clients + i, i, tcp);
        lost = sent - received;
    }
    printf("{\"sent\": %lu, \"received\": %lu, \"lost\": %lu, \"strange\": %lu, \"seconds\": %.6f, "
           "\"p50\": %lu, \"p99\": %lu, \"noerror\": %lu, \"nxdomain\": %lu, \"refused\": %lu}\n",
           sent, received, lost, strange, took, percentile(0.5), percentile(0.99), rcodes[0], rcodes[3], rcodes[5]);
    return 0;
}
