"""``python -m tests.servers``: fetches the servers that tests use where they find them."""

from tests.servers import cache, object_servers

if __name__ == "__main__":
    for name in cache.FROM_MAVEN:
        print(cache.fetch(name), flush=True)
    for package in cache.FROM_DEBIAN:
        print(cache.install(package), flush=True)
    for name, (package, program) in cache.FROM_SID.items():
        print(cache.unpack_from_debian(name, package, program), flush=True)
    print(object_servers.fetch_azurite(), flush=True)
    print(object_servers.fetch_minio(), flush=True)
