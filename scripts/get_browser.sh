#!/bin/sh
# Get the browser that the report's page is tested in, and the software renderer that films are drawn with: Debian's
# packages, where root may install them. Never asks, and ends well wherever it gets nothing: the tests leave out what is
# missing and say so. CI demands both by CURIAX_REQUIRE_BROWSER=1 and CURIAX_REQUIRE_FILMS=1.
wanted=
{ command -v chromium && command -v chromedriver; } >/dev/null || wanted="chromium chromium-driver"
PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep -q libEGL.so.1 || wanted="$wanted libegl1 libgl1-mesa-dri"
[ -n "$wanted" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0

echo "installing" $wanted
export DEBIAN_FRONTEND=noninteractive
# Not for long where there is no network, or where somebody else is installing.
apt="apt-get -qq -o Acquire::Retries=2 -o DPkg::Lock::Timeout=60"
said=$({ timeout 120 $apt update && $apt install --yes $wanted; } 2>&1 </dev/null) || {
  echo "$said" | grep '^E:'
  echo "apt-get could not install" $wanted
}
exit 0
