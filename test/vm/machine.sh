# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# One machine, for one command. Sourced.
# shellcheck disable=SC2154 # vm sets what is not set here

# pick_accelerator KERNEL prints tcg or kvm. /dev/kvm may be there, may even be opened, and still run no ordinary kernel (nested in some
# clouds): only a boot tells. The kernel has no root in this one, panics, and thereby ends the machine.
pick_accelerator() {
	local kernel="$1" memo
	case "$VM_ACCEL" in
	tcg | kvm)
		echo "$VM_ACCEL"
		return
		;;
	auto) ;;
	*) die "VM_ACCEL=$VM_ACCEL: tcg, kvm and auto are known" ;;
	esac
	memo="$cache/accelerator-$(cat /proc/sys/kernel/random/boot_id)"
	if [[ ! -s "$memo" ]]; then
		rm -f "$cache"/accelerator-*
		if [[ -w /dev/kvm ]] && timeout -k 5 8 "$qemu" -accel kvm -cpu host -M "$machine" -m 256 -nodefaults -display none -no-reboot \
			-kernel "$kernel/vmlinuz" -append "panic=-1 quiet" </dev/null >/dev/null 2>&1; then
			echo kvm >"$memo"
		else
			echo tcg >"$memo"
		fi
	fi
	cat "$memo"
}

# forget ends what run began; it runs however run ends.
forget() {
	trap '' INT TERM HUP QUIT
	if [[ -n "${machine_pid:-}" ]]; then
		kill "$machine_pid" 2>/dev/null || true # timeout passes it on to QEMU, and waits for it
		wait "$machine_pid" 2>/dev/null || true
	fi
	rm -rf "$work"
}

run() {
	local kernel program accel cpu status=0 ended=0 start=$SECONDS reader shares=()
	kernel="$(kernel_folder)"
	program="$(command -v -- "$1")" || die "there is no command $1"
	[[ "$program" == /* ]] || program="$(cd "$(dirname "$program")" && pwd)/$(basename "$program")"
	shift
	accel="$(pick_accelerator "$kernel")"
	cpu=max
	[[ "$accel" != kvm ]] || cpu=host
	[[ "$accel" != tcg ]] || accel=tcg,thread=multi

	machine_pid=
	work="$(mktemp -d)"
	trap forget EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP QUIT
	describe "$kernel" "$program" "$@"

	# Through a cat, for QEMU opens the file anew: it could not do so with a socket, and would empty a file.
	exec 3> >(exec cat)
	reader=$!
	# Should this shell be killed, the kernel kills the machine.
	setpriv --pdeathsig KILL timeout --foreground -k 5 "$VM_TIMEOUT" setpriv --pdeathsig KILL "$qemu" \
		-accel "$accel" -cpu "$cpu" -M "$machine" -smp "$VM_CPUS" -m "$VM_MEMORY" \
		-nodefaults -no-user-config -display none -no-reboot -nic none \
		-kernel "$kernel/vmlinuz" -initrd "$kernel/initrd" \
		-append "console=$console quiet panic=-1 oops=panic net.ifnames=0 mitigations=off" \
		-serial "file:$work/console" \
		-device virtio-serial-pci -chardev file,id=output,path=/dev/fd/3,append=on -device virtserialport,chardev=output,name=output \
		-fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=host,mount_tag=host \
		-fsdev "local,id=vm,path=$work/vm,security_model=none" -device virtio-9p-pci,fsdev=vm,mount_tag=vm \
		"${shares[@]}" </dev/null >&2 &
	machine_pid=$!
	exec 3>&-
	wait "$machine_pid" || ended=$?
	machine_pid=
	wait "$reader" || true

	if [[ -n "$VM_VERBOSE" ]]; then
		cat "$work/console" >&2
		echo "vm: $accel, $((SECONDS - start)) s; uptime and kilobytes left: $(cat "$work/vm/usage" 2>/dev/null || echo unknown)" >&2
	fi
	if [[ ! -s "$work/vm/status" ]]; then
		tail -n 40 "$work/console" >&2 2>/dev/null || true
		((ended != 124)) || die "the machine was ended after VM_TIMEOUT=$VM_TIMEOUT seconds; the end of its console is above"
		die "the machine ended (QEMU: $ended) without the command's status; the end of its console is above"
	fi
	status="$(cat "$work/vm/status")"
	exit "$status"
}

# describe KERNEL PROGRAM ARG… writes what the machine reads, and fills shares.
describe() {
	local kernel="$1" folder folders=() vm="$work/vm"
	shift
	mkdir "$vm"
	cp "$here/inside" "$vm/inside"
	echo "$kernel/lib/modules" >"$vm/modules"
	pwd >"$vm/folder"
	printf '%s\0' "$@" >"$vm/command"
	export -p | grep -vE '^declare -x (VM_[A-Z]+|TMPDIR|OLDPWD|SHLVL|_)[=]' >"$vm/environment" || true
	IFS=: read -ra folders <<<"$VM_WRITE"
	# What go test has to find again: profiles, fuzz inputs.
	[[ "$(dirname "$1")" != */go-build*/b[0-9]* ]] || folders+=("$(dirname "$1")")
	: >"$vm/shares"
	for folder in "${folders[@]}"; do
		folder="$(readlink -e "$folder")" || die "VM_WRITE: there is no folder $folder"
		[[ "$folder" != *[,[:space:]]* ]] || die "VM_WRITE: QEMU takes no folder with a comma or a space in its name: $folder"
		echo "write${#shares[@]} $folder" >>"$vm/shares"
		shares+=(-fsdev "local,id=write${#shares[@]},path=$folder,security_model=none,multidevs=remap" -device "virtio-9p-pci,fsdev=write${#shares[@]},mount_tag=write${#shares[@]}")
	done
}
