#!/bin/sh
# Runs a command in Debian 11, so that what it builds runs with glibc 2.31: release/debian_11.sh ROOT COMMAND...
# Needs root, debootstrap and curl. ROOT is made once, in six minutes on two cores: Debian 11 with a newer Python and OpenSSL,
# built from source, in /opt/python. The command runs in the current directory, with this Python first on PATH. Sources that
# are in build/sources already are not downloaded.
set -eu

PYTHON=3.13.5
PYTHON_SHA256=93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640
OPENSSL=3.5.7
OPENSSL_SHA256=a8c0d28a529ca480f9f36cf5792e2cd21984552a3c8e4aa11a24aa31aeac98e8
PACKAGES=build-essential,ca-certificates,libffi-dev,liblzma-dev,zlib1g-dev

root=$1
shift
complete=$root/opt/python/complete

source_of() { # source_of URL SHA256: downloads a source, and unpacks it in the root
    file=build/sources/${1##*/}
    mkdir -p build/sources "$root/src"
    [ -e "$file" ] || curl --fail --silent --show-error --location --output "$file" "$1"
    echo "$2  $file" | sha256sum --check --quiet
    tar -xf "$file" -C "$root/src"
}

if [ ! -e "$complete" ]; then
    debootstrap --variant=minbase --include="$PACKAGES" bullseye "$root" >/dev/null
    source_of "https://github.com/openssl/openssl/releases/download/openssl-$OPENSSL/openssl-$OPENSSL.tar.gz" "$OPENSSL_SHA256"
    source_of "https://www.python.org/ftp/python/$PYTHON/Python-$PYTHON.tar.xz" "$PYTHON_SHA256"
    chroot "$root" /bin/sh -eu <<EOF
cd /src/openssl-$OPENSSL
./Configure --prefix=/opt/python --libdir=lib --openssldir=/etc/ssl no-apps no-docs no-legacy no-tests >/dev/null
make --silent -j"$(nproc)" build_libs >/dev/null
make --silent install_dev >/dev/null
# Where release/licences.py looks for the licence of a library that was built with Python.
for name in libcrypto libssl; do install -D -m 644 LICENSE.txt "/opt/python/share/licenses/\$name/LICENSE.txt"; done
cd /src/Python-$PYTHON
./configure --quiet --prefix=/opt/python --enable-shared --with-openssl=/opt/python --disable-test-modules \
    LDFLAGS=-Wl,-rpath,/opt/python/lib
make --silent -j"$(nproc)" >/dev/null
make --silent install >/dev/null
rm -rf /src
EOF
    touch "$complete"
fi

# In mounts of its own: none is left, whatever ends the command.
here=$PWD
export here root
exec unshare --mount /bin/sh -eu -c '
mkdir -p "$root$here"
mount --bind "$here" "$root$here"
mount --bind /etc/ssl/certs "$root/etc/ssl/certs"
exec chroot "$root" /bin/sh -eu -c "cd \"\$here\"; PATH=/opt/python/bin:/usr/sbin:/usr/bin:/sbin:/bin exec \"\$@\"" sh "$@"
' sh "$@"
