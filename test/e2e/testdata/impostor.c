// SPDX-License-Identifier: Apache-2.0

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * What any tenant can run on a node. Under the name of kube-proxy it waits to be asked at the port that its command
 * line ends with; under any other, a program of its container was run: that leaves a mark. It prints whatever happens.
 */
int main(int argc, char **argv) {
	const char *name = strrchr(argv[0], '/');
	name = name ? name + 1 : argv[0];
	if (strcmp(name, "kube-proxy")) {
		char path[256];
		snprintf(path, sizeof path, "/mark/%s", name);
		close(open(path, O_CREAT | O_WRONLY, 0644));
		return 0;
	}
	int s = socket(AF_INET, SOCK_STREAM, 0), one = 1, port = atoi(strrchr(argv[argc - 1], ':') + 1);
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(s, (struct sockaddr *)&at, sizeof at) || listen(s, 16)) {
		perror("listen");
		return 1;
	}
	setvbuf(stdout, NULL, _IONBF, 0);
	puts("ready");
	for (;;) {
		struct pollfd p = {.fd = s, .events = POLLIN};
		if (poll(&p, 1, 200) > 0) {
			const char text[] = "HTTP/1.0 200 OK\r\n\r\nipvs";
			int c = accept(s, NULL, NULL);
			puts("it was asked");
			if (write(c, text, sizeof text - 1) < 0)
				perror("write");
			close(c);
		}
		DIR *marks = opendir("/mark");
		for (struct dirent *d; marks && (d = readdir(marks));)
			if (d->d_name[0] != '.') {
				printf("it was run: %s\n", d->d_name);
				char path[512];
				snprintf(path, sizeof path, "/mark/%s", d->d_name);
				unlink(path);
			}
		if (marks)
			closedir(marks);
	}
}
