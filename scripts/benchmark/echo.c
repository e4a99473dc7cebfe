/* The floor: every datagram back with QR set, by recvmmsg and sendmmsg, 64 a call. `echo PORT` on 127.0.0.1. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>

#define BATCH 64
#define SLOT 4096

int main(int argc, char **argv) {
    static unsigned char slots[BATCH][SLOT];
    static struct sockaddr_in names[BATCH];
    static struct iovec parts[BATCH];
    static struct mmsghdr messages[BATCH];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 0)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int size = 4 << 20, fd = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    if (bind(fd, (struct sockaddr *)&at, sizeof at)) return 1;
    for (;;) {
        for (int i = 0; i < BATCH; i++) {
            parts[i] = (struct iovec){slots[i], SLOT};
            messages[i].msg_hdr = (struct msghdr){names + i, sizeof names[i], parts + i, 1, 0, 0, 0};
        }
        int n = recvmmsg(fd, messages, BATCH, MSG_WAITFORONE, 0);
        for (int i = 0; i < n; i++) {
            parts[i].iov_len = messages[i].msg_len;
            slots[i][2] |= 0x80;
        }
        if (n > 0) sendmmsg(fd, messages, n, 0);
    }
}
