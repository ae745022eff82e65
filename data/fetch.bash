# Sourced by the scripts of this folder.
#
#   fetch_package NAME    downloads a Debian package and unpacks it, without installing anything,
#                         into $scratch/unpacked; what was printed is in $scratch/log

download() {
    timeout 300 apt-get -q -o APT::Sandbox::User=root -o Acquire::Retries=1 \
        -o Acquire::http::Timeout=30 download "$1"
}

fetch_package() (
    cd "$scratch" || return 1
    download "$1" || {
        # a system whose package lists were never read, or are too old
        if [ "$(id -u)" -eq 0 ]; then timeout 300 apt-get -q update; else sudo -n apt-get -q update; fi
        download "$1"
    } || return 1
    dpkg-deb -x "$1"_*.deb unpacked
) </dev/null >"$scratch/log" 2>&1
