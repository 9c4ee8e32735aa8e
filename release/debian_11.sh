#!/bin/sh
# Runs a command in Debian 11, so that what it builds runs with glibc 2.31: release/debian_11.sh ROOT COMMAND...
# Needs root and debootstrap. ROOT is made once, in six minutes on two cores: Debian 11 and, in /opt/python, a newer Python and
# OpenSSL, built from the sources that Debian 13 has, whose signatures are checked with the keys of this machine. The command
# runs in the current directory, with this Python first on PATH.
set -eu

PYTHON=python3.13
PACKAGES=build-essential,ca-certificates,libffi-dev,liblzma-dev,zlib1g-dev
KEYS=/usr/share/keyrings/debian-archive-keyring.gpg

root=$1
shift

make_root() { # Not to be called where a condition is: `set -e` would not hold in it.
    rm -rf "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase --keyring="$KEYS" --include="$PACKAGES" bullseye "$root"
    cp "$KEYS" "$root/etc/apt/debian-13.gpg"
    # The mirror is the one that debootstrap has taken.
    read -r _ mirror _ <"$root/etc/apt/sources.list"
    for suite in "$mirror trixie" "$mirror-security trixie-security"; do
        echo "deb-src [signed-by=/etc/apt/debian-13.gpg] $suite main"
    done >"$root/etc/apt/sources.list.d/debian-13.list"
    PYTHON=$PYTHON chroot "$root" /bin/sh -eu <<'END'
echo 'Acquire::Retries "5"; APT::Sandbox::User "root";' >/etc/apt/apt.conf.d/sources
mkdir /src
cd /src
apt-get update
for name in openssl "$PYTHON"; do
    # A mirror that lacks the newest may have the last security update.
    apt-get source --tar-only "$name" || apt-get source --tar-only "$name/trixie-security"
    mkdir "$name"
    tar -xf "$name"_*.orig.tar.* --strip-components 1 -C "$name"
done
cd /src/openssl
./Configure --prefix=/opt/python --libdir=lib --openssldir=/etc/ssl no-apps no-docs no-legacy no-tests
make --silent -j"$(nproc)" build_libs
make --silent install_dev
install -D -m 644 LICENSE.txt /opt/python/share/licenses/openssl/LICENSE.txt
cd "/src/$PYTHON"
./configure --quiet --prefix=/opt/python --enable-shared --with-openssl=/opt/python --disable-test-modules \
    LDFLAGS=-Wl,-rpath,/opt/python/lib
make --silent -j"$(nproc)"
make --silent install
ln -s python3 /opt/python/bin/python
cd /
rm -rf /src
END
    touch "$root/complete"
}

if [ ! -e "$root/complete" ]; then
    mkdir -p "$(dirname "$root")"
    trap 'echo "$root could not be made, see $root.log:" >&2; tail -n 20 "$root.log" >&2' EXIT
    make_root >"$root.log" 2>&1
    trap - EXIT
fi

# In mounts of its own: none is left, whatever ends the command.
here=$PWD
export here root
exec unshare --mount /bin/sh -eu -c '
mkdir -p "$root$here"
mount --bind "$here" "$root$here"
mount --bind /etc/ssl/certs "$root/etc/ssl/certs"
cp --remove-destination /etc/resolv.conf "$root/etc/resolv.conf"
exec chroot "$root" /bin/sh -eu -c "cd \"\$here\"; PATH=/opt/python/bin:/usr/sbin:/usr/bin:/sbin:/bin exec \"\$@\"" sh "$@"
' sh "$@"
