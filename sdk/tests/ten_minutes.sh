#!/bin/sh
# ten_minutes.sh ROOT BUILD [USER]: README.md's ten minutes, word for word, in an empty Debian 12 or Ubuntu 24.04 at
# ROOT, which debootstrap --variant=minbase has made (of Ubuntu with --components=main,universe), with the prefix alone
# that is installed from BUILD. Needs root and a network, so no test runs it. The system must be the one that BUILD was
# made on, or have its libraries.
#
# Commands that need a GPU are left out, and the installation itself happens from outside. As USER (made if need be,
# with a umask of 002, as Ubuntu's users have it), else as root.
set -eu
root=$1 build=$2 user=${3:-root}
page=$(dirname "$0")/../README.md
inside() { chroot "$root" env -i HOME=/root LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

mount -t proc proc "$root/proc"
trap 'umount "$root/proc"' EXIT
cp /etc/resolv.conf "$root/etc/resolv.conf"
# The line with what to install, as the page says it, and what the worker itself is linked to.
packages="$(sed -n 's/.*`apt-get install \(gcc [^`]*\)`.*/\1/p' "$page")"
runtime="$(sed -n 's/.*`apt-get install \(libjansson4 [^`]*\)`.*/\1/p' "$page")"
[ -n "$packages" ] && [ -n "$runtime" ]
inside apt-get update -qq
# shellcheck disable=SC2086 # lists of words on purpose
inside env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages $runtime >/dev/null

home=/root
mask=022
if [ "$user" != root ]; then
    home=/home/$user mask=002
    inside id "$user" >/dev/null 2>&1 || inside useradd -m -s /bin/sh "$user"
fi
for component in worker sdk; do
    (umask $mask && cmake --install "$build" --prefix "$root$home/worker" --component $component >/dev/null)
done
# Every command of "Ten minutes" that needs nothing special.
{
    echo "set -eux; umask $mask"
    awk '/^# / { part = ($0 == "# Ten minutes") } /^```/ { code = part && $0 == "```sh"; next }
        code && !/^cmake --install build-release/' "$page"
} >"$root$home/ten_minutes.sh"
inside chown -R "$user" "$home"
inside su "$user" -c "cd ~ && sh ten_minutes.sh"
